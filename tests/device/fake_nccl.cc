// A library with NCCL's functions that moves no data: it remembers its calls and answers as told.
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>

namespace {

struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
struct UniqueId {
  char bytes[128];
};

std::mutex mutex;
std::string lines;
std::string handed_out;
int polls_per_call = 0;
int polls_left = 0;
int final_result = 0;

template <class... Args>
void note(const char* format, Args... args) {
  char line[200];
  std::snprintf(line, sizeof(line), format, args...);
  lines += std::string(line) + "\n";
}

// A handle is the rank and one, so that none is null.
long rank_of(void* comm) { return static_cast<long>(reinterpret_cast<size_t>(comm)) - 1; }
size_t number(const void* pointer) { return reinterpret_cast<size_t>(pointer); }

int begin() {
  polls_left = polls_per_call;
  return polls_left > 0 ? 7 : final_result;
}

}  // namespace

extern "C" {

void fake_nccl_reset(int num_polls, int result) {
  const std::lock_guard lock(mutex);
  polls_per_call = num_polls;
  final_result = result;
  lines.clear();
}

const char* fake_nccl_calls() {
  const std::lock_guard lock(mutex);
  handed_out = lines;
  lines.clear();
  return handed_out.c_str();
}

int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  id->bytes[127] = 42;
  return 0;
}

int ncclCommInitRankConfig(void** comm, int size, UniqueId id, int rank, Config* config) {
  const std::lock_guard lock(mutex);
  if (id.bytes[127] != 42 || config->magic != 0xcafebeef || config->size < sizeof(Config)) return 4;
  *comm = reinterpret_cast<void*>(static_cast<size_t>(rank) + 1);
  note("init %d of %d blocking %d", rank, size, config->blocking);
  return 0;
}

int ncclGroupStart() {
  const std::lock_guard lock(mutex);
  note("group start");
  return 0;
}

int ncclGroupEnd() {
  const std::lock_guard lock(mutex);
  note("group end");
  return begin();
}

int ncclCommAbort(void* comm) {
  const std::lock_guard lock(mutex);
  note("abort %ld", rank_of(comm));
  return 0;
}

int ncclCommGetAsyncError(void* comm, int* result) {
  const std::lock_guard lock(mutex);
  if (polls_left > 0) --polls_left;
  if (polls_per_call < 1000) note("poll %ld", rank_of(comm));
  *result = polls_left > 0 ? 7 : final_result;
  return 0;
}

const char* ncclGetErrorString(int result) {
  static thread_local char text[20];
  std::snprintf(text, sizeof(text), "result %d", result);
  return text;
}

int ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm,
                  void* stream) {
  const std::lock_guard lock(mutex);
  note("all_gather %ld: %#zx to %#zx, %zu of type %d, on %#zx", rank_of(comm), number(send),
       number(receive), count, type, number(stream));
  return begin();
}

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, void* comm,
                  void* stream) {
  const std::lock_guard lock(mutex);
  note("all_reduce %ld: %#zx to %#zx, %zu of type %d, op %d, on %#zx", rank_of(comm), number(send),
       number(receive), count, type, op, number(stream));
  return begin();
}

int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int op, void* comm,
                      void* stream) {
  const std::lock_guard lock(mutex);
  note("reduce_scatter %ld: %#zx to %#zx, %zu of type %d, op %d, on %#zx", rank_of(comm),
       number(send), number(receive), count, type, op, number(stream));
  return begin();
}

int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm,
                  void* stream) {
  const std::lock_guard lock(mutex);
  note("broadcast %ld: %#zx to %#zx, %zu of type %d, root %d, on %#zx", rank_of(comm), number(send),
       number(receive), count, type, root, number(stream));
  return begin();
}

}  // extern "C"
