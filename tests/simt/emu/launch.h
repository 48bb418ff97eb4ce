// launch(): what <<<>>> does. On the default stream (null) the kernel runs before launch() returns
// and its faults are launch()'s error; on a stream it is queued, with a copy of its arguments.
#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "simt/emu/runtime.h"

namespace simt {

// A kernel and its arguments, already converted to the kernel's own parameter types.
template <class... Params>
struct KernelCall {
  void (*kernel)(Params...);
  std::tuple<Params...> arguments;

  DHS_SIMT_UNCHECKED static void invoke(const void* self) {
    static_cast<const KernelCall*>(self)->apply(std::index_sequence_for<Params...>{});
  }

  // By hand, not std::apply: in an instrumented file that would report reads of our arguments.
  template <size_t... I>
  DHS_SIMT_UNCHECKED void apply(std::index_sequence<I...>) const {
    kernel(std::get<I>(arguments)...);
  }
};

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, Args&&... args) {
  using Call = KernelCall<Params...>;
  const LaunchShape shape{grid, block, shared_bytes, reinterpret_cast<const void*>(kernel)};
  Call call{kernel, {static_cast<Params>(std::forward<Args>(args))...}};
  if (stream == nullptr) return run_grid(shape, &Call::invoke, &call);
  return queue_grid(shape, &Call::invoke, std::make_shared<const Call>(std::move(call)), stream);
}

}  // namespace simt
