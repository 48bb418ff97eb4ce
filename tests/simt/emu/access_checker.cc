#include "simt/emu/access_checker.h"

#include <link.h>

#include <algorithm>
#include <new>
#include <utility>

// Provided by the linker.
extern "C" char __executable_start;
extern "C" char _end;

namespace simt {
namespace {

// dl_iterate_phdr callback: the size of the main program's TLS block, into *result.
int find_tls_bytes(dl_phdr_info* info, size_t, void* result) {
  const bool is_main_program = info->dlpi_name == nullptr || info->dlpi_name[0] == '\0';
  if (!is_main_program) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_TLS) {
      const size_t alignment = header.p_align > 64 ? header.p_align : 64;
      *static_cast<size_t*>(result) = (header.p_memsz + alignment - 1) & ~(alignment - 1);
    }
  }
  return 1;
}

// Static `__shared__` variables are thread_local. On x86-64 the main program's thread_locals lie
// right below the thread pointer.
AddressRange find_static_shared() {
  size_t bytes = 0;
  dl_iterate_phdr(&find_tls_bytes, &bytes);
  const auto thread_pointer = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
  return {thread_pointer - bytes, thread_pointer};
}

AddressRange find_program_image() {
  return {reinterpret_cast<uintptr_t>(&__executable_start), reinterpret_cast<uintptr_t>(&_end)};
}

const char* name_of(AccessKind kind) {
  switch (kind) {
    case AccessKind::read:
      return "read";
    case AccessKind::write:
      return "write";
    case AccessKind::atomic:
      return "atomic";
  }
  return "?";
}

std::string describe(const KernelAccess& access) {
  return std::string(name_of(access.kind)) + " of " + std::to_string(access.bytes) + " bytes";
}

std::string describe(const ShadowAccess& earlier) {
  const std::string warp = std::to_string(earlier.thread / kWarpSize);
  switch (earlier.scope) {
    case Scope::thread:
      return "thread " + std::to_string(earlier.thread);
    case Scope::warp:
      return "several lanes of warp " + warp;
    case Scope::block:
      return "several warps";
    default:
      return "several blocks";
  }
}

std::string describe_other_party(const ShadowAccess& earlier, const AccessTime& now) {
  const bool other_block = earlier.scope != Scope::grid && earlier.epoch < now.block_begin;
  return describe(earlier) + (other_block ? " of another block" : "");
}

}  // namespace

// --------------------------------------------------------------------------------- ShadowMemory

void ShadowMemory::reserve(size_t bytes) {
  if (bytes <= bytes_) {
    return;
  }
  // All zero is a valid ShadowCell that remembers nothing; calloc gets it from fresh pages for
  // free.
  void* cells = std::calloc(bytes, sizeof(ShadowCell));
  if (cells == nullptr) {
    throw std::bad_alloc();
  }
  cells_.reset(static_cast<ShadowCell*>(cells));
  bytes_ = bytes;
}

// ------------------------------------------------------------------------------------ BufferMap

BufferMap& buffers() {
  static BufferMap map;
  return map;
}

void BufferMap::add(AddressRange range, std::string name) {
  std::erase_if(retired_, [&](const Buffer& old) {
    return old.range.begin < range.end && range.begin < old.range.end;
  });
  Buffer& buffer = buffers_[range.begin];
  buffer.range = range;
  buffer.name = std::move(name);
}

void BufferMap::remove(uintptr_t begin) { buffers_.erase(begin); }

void BufferMap::retire(uintptr_t begin) {
  const auto found = buffers_.find(begin);
  if (found == buffers_.end()) return;
  Buffer& old = retired_.emplace_back();
  old.range = found->second.range;
  old.name = std::move(found->second.name);
  buffers_.erase(found);
}

const Buffer* BufferMap::retired_at(uintptr_t address) const {
  for (const Buffer& old : retired_) {
    if (old.range.contains(address)) return &old;
  }
  return nullptr;
}

void BufferMap::forget_retired(uintptr_t begin) {
  std::erase_if(retired_, [&](const Buffer& old) { return old.range.begin == begin; });
}

bool BufferMap::is_retired(uintptr_t address) const { return retired_at(address) != nullptr; }

void BufferMap::reserve_shadows() {
  for (auto& [begin, buffer] : buffers_) {
    buffer.shadow.reserve(buffer.range.end - buffer.range.begin);
  }
}

Buffer* BufferMap::find(uintptr_t address, size_t bytes) {
  auto next = buffers_.upper_bound(address);
  if (next == buffers_.begin()) {
    return nullptr;
  }
  Buffer& candidate = std::prev(next)->second;
  return candidate.range.contains(address, bytes) ? &candidate : nullptr;
}

std::string BufferMap::describe(uintptr_t address) const {
  if (const Buffer* old = retired_at(address)) {
    return "byte " + std::to_string(address - old->range.begin) + " of '" + old->name +
           "', which is freed";
  }
  if (buffers_.empty()) {
    return "no buffers are registered";
  }
  auto next = buffers_.upper_bound(address);
  if (next == buffers_.begin()) {
    const Buffer& after = next->second;
    return std::to_string(after.range.begin - address) + " bytes before '" + after.name + "'";
  }
  const Buffer& before = std::prev(next)->second;
  if (before.range.contains(address)) {
    return "byte " + std::to_string(address - before.range.begin) + " of " +
           std::to_string(before.range.end - before.range.begin) + " of '" + before.name + "'";
  }
  return std::to_string(address - before.range.end) + " bytes past the end of '" + before.name +
         "'";
}

// -------------------------------------------------------------------------------- AccessChecker

void AccessChecker::begin_launch(BufferMap& buffers, AddressRange dynamic_shared,
                                 const Options& options) {
  buffers_ = &buffers;
  recent_ = nullptr;
  dynamic_shared_ = dynamic_shared;
  static_shared_ = find_static_shared();
  program_image_ = find_program_image();
  logs_ = false;
  uninitialized_shared_ = options.uninitialized_shared;
  shared_races_ = options.shared_races;
  global_races_ = options.global_races;
  if (shared_races_) {
    dynamic_shadow_.reserve(dynamic_shared.end - dynamic_shared.begin);
    static_shadow_.reserve(static_shared_.end - static_shared_.begin);
  }
}

void AccessChecker::log_accesses(bool wanted) {
  logs_ = wanted;
  touched_ = AccessLog{};
}

std::optional<Finding> AccessChecker::check(const KernelAccess& access) {
  const uintptr_t address = access.address;
  if (access.own_stack.contains(address, access.bytes)) {
    return std::nullopt;
  }
  if (access.aligned && address % access.bytes != 0) {
    return Finding{"misaligned " + describe(access), true};
  }
  const AddressRange shared_and_slack{dynamic_shared_.begin,
                                      dynamic_shared_.end + kSharedSlackBytes};
  if (shared_and_slack.contains(address)) {
    return check_dynamic_shared(access);
  }
  if (static_shared_.contains(address)) {
    ShadowCell* cells = shared_races_ ? static_shadow_.cells() : nullptr;
    return check_race(access, cells ? cells + (address - static_shared_.begin) : nullptr,
                      Space::shared);
  }
  if (Buffer* buffer = find_buffer(access)) {
    if (logs_) touched_.add(address, access.bytes, access.kind);
    ShadowCell* cells = global_races_ ? buffer->shadow.cells() : nullptr;
    return check_race(access, cells ? cells + (address - buffer->range.begin) : nullptr,
                      Space::global);
  }
  if (program_image_.contains(address)) {
    return std::nullopt;
  }
  return Finding{"global out-of-bounds " + describe(access) + ", " + buffers_->describe(address),
                 true};
}

std::optional<Finding> AccessChecker::check_dynamic_shared(const KernelAccess& access) {
  const uintptr_t offset = access.address - dynamic_shared_.begin;
  if (!dynamic_shared_.contains(access.address, access.bytes)) {
    const size_t size = dynamic_shared_.end - dynamic_shared_.begin;
    return Finding{"shared out-of-bounds " + describe(access) + " at offset " +
                       std::to_string(offset) + " of " + std::to_string(size),
                   true};
  }
  ShadowCell* cells = shared_races_ ? dynamic_shadow_.cells() : nullptr;
  return check_race(access, cells ? cells + offset : nullptr, Space::shared);
}

std::optional<Finding> AccessChecker::check_race(const KernelAccess& access, ShadowCell* cells,
                                                 Space space) {
  if (cells == nullptr) {
    return std::nullopt;
  }
  const bool garbage = is_garbage(access, cells, space);
  std::optional<Race> race;
  for (size_t i = 0; i < access.bytes; ++i) {
    if (auto found = record_access(cells[i], access.time, access.kind, space)) {
      race = found;
    }
  }
  if (garbage) {
    return Finding{"uninitialized shared " + describe(access) + ": no thread of the block has " +
                       "written there",
                   false};
  }
  if (!race) {
    return check_proxy(access, cells);
  }
  const char* memory = space == Space::shared ? "shared" : "global";
  return Finding{std::string(memory) + " race: " + describe(access) + " is not ordered after the " +
                     name_of(race->earlier_kind) + " by " +
                     describe_other_party(race->earlier, access.time),
                 false};
}

// What a thread wrote reaches the asynchronous proxy by a fence of that thread. Precondition: the
// writes are ordered before this access.
std::optional<Finding> AccessChecker::check_proxy(const KernelAccess& access,
                                                  const ShadowCell* cells) {
  if (access.proxy_fences == nullptr || access.kind != AccessKind::read) {
    return std::nullopt;
  }
  const auto is_unfenced = [&](const ShadowCell& cell) {
    return cell.write.epoch >= access.time.block_begin &&
           cell.write_fences == access.proxy_fences[cell.write.thread];
  };
  const ShadowCell* found = std::find_if(cells, cells + access.bytes, is_unfenced);
  if (found == cells + access.bytes) {
    return std::nullopt;
  }
  return Finding{"missing fence.proxy.async: " + describe(access) + " that thread " +
                     std::to_string(found->write.thread) + " has written without one",
                 false};
}

// A vector may have unused parts, so one byte that was written is enough.
bool AccessChecker::is_garbage(const KernelAccess& access, const ShadowCell* cells,
                               Space space) const {
  if (space != Space::shared || access.kind == AccessKind::write || !uninitialized_shared_) {
    return false;
  }
  const auto written = [&](const ShadowCell& cell) { return is_written(cell, access.time); };
  return std::none_of(cells, cells + access.bytes, written);
}

Buffer* AccessChecker::find_buffer(const KernelAccess& access) {
  if (recent_ == nullptr || !recent_->range.contains(access.address, access.bytes)) {
    recent_ = buffers_->find(access.address, access.bytes);
  }
  return recent_;
}

}  // namespace simt
