// What the files of BlockRunner share.
#pragma once

#include <source_location>
#include <string>

#include "simt/emu/block_runner.h"

namespace simt {

// Silences the access checks while emulator code runs on a fiber.
//
// The emulator is not instrumented, but inline functions of the standard library may be: the linker
// keeps one copy for all files, and that can be the copy of a kernel file.
class ChecksOff {
 public:
  ChecksOff() : saved_(current_thread) { current_thread = nullptr; }
  ~ChecksOff() { current_thread = saved_; }
  ChecksOff(const ChecksOff&) = delete;
  ChecksOff& operator=(const ChecksOff&) = delete;

 private:
  ThreadContext* saved_;
};

inline std::string describe(std::source_location where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

inline std::string describe(const ThreadContext& thread) {
  const uint3 block = thread.block_index;
  return "block (" + std::to_string(block.x) + "," + std::to_string(block.y) + "," +
         std::to_string(block.z) + ") thread " + std::to_string(thread.linear_index);
}

// The text is made and stored in here, with the checks off, before the thread's stack is abandoned.
template <class MakeText>
void BlockRunner::fail(ThreadState& thread, MakeText make_text) {
  {
    const ChecksOff checks_off;
    add_fault(make_text(), CodePlace{});
  }
  park(thread);
}

}  // namespace simt
