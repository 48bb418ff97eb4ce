#include "library.h"

#include <dlfcn.h>

#include "dhisparse/base.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

std::string loader_words() {
  const char* words = dlerror();
  return words == nullptr ? "no reason given" : words;
}

}  // namespace

absl::StatusOr<Library> Library::load(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(loader_words(), "; install ", name, " or add its folder to LD_LIBRARY_PATH"));
  }
  return Library(name, handle);
}

absl::StatusOr<void*> Library::symbol(const std::string& name) const {
  void* address = dlsym(handle_, name.c_str());
  if (address == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(name_, " lacks ", name, " (", loader_words(), "); install a newer version"));
  }
  return address;
}

void* load_library_symbol(const char* library, const char* symbol) {
  const absl::StatusOr<Library> loaded = Library::load(library);
  if (!loaded.ok()) return nullptr;
  return loaded->symbol(symbol).value_or(nullptr);
}

}  // namespace dhs
