// Libraries that the program loads when it needs them, so that it starts without them.
#pragma once

#include <absl/status/statusor.h>

#include <string>

namespace dhs {

// A loaded library; it stays loaded until the process ends. Copied freely. Thread-safe.
class Library {
 public:
  // NOT_FOUND with the loader's words.
  static absl::StatusOr<Library> load(const std::string& name);

  // NOT_FOUND names the library and the function.
  absl::StatusOr<void*> symbol(const std::string& name) const;

  // Sets `function` to the symbol's address.
  template <class Function>
  absl::Status find(const std::string& name, Function*& function) const {
    absl::StatusOr<void*> address = symbol(name);
    if (!address.ok()) return address.status();
    function = reinterpret_cast<Function*>(*address);
    return absl::OkStatus();
  }

 private:
  Library(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace dhs
