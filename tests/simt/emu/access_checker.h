// Judges every load and store of kernel code: may this thread touch this memory now?
#pragma once

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "simt/emu/access_log.h"
#include "simt/emu/dynamic_shared.h"
#include "simt/emu/fiber.h"
#include "simt/emu/race_detector.h"
#include "simt/emu/runtime.h"

namespace simt {

// Zeroed on demand by the kernel, so shadow of untouched bytes costs address space only.
class ShadowMemory {
 public:
  void reserve(size_t bytes);
  ShadowCell* cells() const { return cells_.get(); }

 private:
  struct Free {
    void operator()(ShadowCell* cells) const { std::free(cells); }
  };
  std::unique_ptr<ShadowCell[], Free> cells_;
  size_t bytes_ = 0;
};

struct Buffer {
  AddressRange range;
  std::string name;
  ShadowMemory shadow;
};

// The registered buffers, by their first address.
class BufferMap {
 public:
  void add(AddressRange range, std::string name);
  void remove(uintptr_t begin);
  // Remembers where the buffer was, so that reports can say so.
  void retire(uintptr_t begin);
  void forget_retired(uintptr_t begin);
  bool is_retired(uintptr_t address) const;
  void reserve_shadows();

  // Null when no single buffer holds all the bytes.
  Buffer* find(uintptr_t address, size_t bytes);

  // "12 bytes past the end of 'x'"
  std::string describe(uintptr_t address) const;

 private:
  const Buffer* retired_at(uintptr_t address) const;

  std::map<uintptr_t, Buffer> buffers_;
  std::deque<Buffer> retired_;
};

// All registered buffers.
BufferMap& buffers();

struct KernelAccess {
  uintptr_t address = 0;
  size_t bytes = 0;
  AccessKind kind = AccessKind::read;
  // The compiler relied on natural alignment, as the GPU does.
  bool aligned = false;
  AddressRange own_stack;
  AccessTime time;
  // An access by the asynchronous proxy: how many fences for it each thread has made. Null for
  // ordinary accesses.
  const uint32_t* proxy_fences = nullptr;
};

struct Finding {
  std::string text;
  // The access itself must not be made.
  bool fatal = false;
};

class AccessChecker {
 public:
  // Must run on the OS thread that will run the blocks: static shared memory is its TLS block.
  void begin_launch(BufferMap& buffers, AddressRange dynamic_shared, const Options& options);
  // Starts or stops the log of touched bytes.
  void log_accesses(bool wanted);

  std::optional<Finding> check(const KernelAccess& access);

  // What has been touched in global memory since begin_launch, when asked for.
  const AccessLog& touched() const { return touched_; }

 private:
  std::optional<Finding> check_dynamic_shared(const KernelAccess& access);
  std::optional<Finding> check_race(const KernelAccess& access, ShadowCell* cells, Space space);
  static std::optional<Finding> check_proxy(const KernelAccess& access, const ShadowCell* cells);
  bool is_garbage(const KernelAccess& access, const ShadowCell* cells, Space space) const;
  Buffer* find_buffer(const KernelAccess& access);

  BufferMap* buffers_ = nullptr;
  // Most accesses hit the buffer that the previous one hit.
  Buffer* recent_ = nullptr;
  AddressRange dynamic_shared_;
  AddressRange static_shared_;
  AddressRange program_image_;
  ShadowMemory dynamic_shadow_;
  ShadowMemory static_shadow_;
  AccessLog touched_;
  bool shared_races_ = false;
  bool global_races_ = false;
  bool uninitialized_shared_ = false;
  bool logs_ = false;
};

}  // namespace simt
