#include "kernels/cuda/launch.h"
#include "kernels/gemm/device_library.h"

namespace dhs::cuda {

const DeviceLibrary::Shape* DeviceLibrary::known(const LibraryMatrix& matrix) const {
  for (const Shape& shape : shapes_) {
    if (shape.precision == matrix.precision && shape.n == matrix.n &&
        shape.padded_k == matrix.padded_k) {
      return &shape;
    }
  }
  return nullptr;
}

const LibraryGemm* DeviceLibrary::find(const LibraryMatrix& matrix, const OwnProduct& own,
                                       Stream stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto agrees = [&](const LibraryGemm& gemm) { return agrees_with_own(gemm, matrix, own, stream); };
  if (const Shape* shape = known(matrix)) {
    const LibraryGemm* gemm = shape->gemm.get();
    return gemm != nullptr && agrees(*gemm) ? gemm : nullptr;
  }
  auto gemm = LibraryGemm::make(api_, handle_, matrix, [&](const LibraryGemm& tried) {
    return agrees(tried) && keeps_row_bits(tried, matrix, stream);
  });
  shapes_.push_back({matrix.precision, matrix.n, matrix.padded_k, std::move(gemm)});
  return shapes_.back().gemm.get();
}

#if defined(__CUDACC__)

namespace {

std::unique_ptr<DeviceLibrary> load_device_library() {
  CublasLtApi api;
  cublasLtHandle_t handle = nullptr;
  if (!load_cublaslt(load_library_symbol, api)) return nullptr;
  if (api.create(&handle) != CUBLAS_STATUS_SUCCESS) return nullptr;
  return std::make_unique<DeviceLibrary>(api, handle);
}

struct Loaded {
  int device;
  std::unique_ptr<DeviceLibrary> library;
};

}  // namespace

DeviceLibrary* library_of_current_device() {
  // Never destroyed, since matrices point into it.
  static std::mutex mutex;
  static auto& all = *new std::vector<Loaded>;
  std::lock_guard<std::mutex> lock(mutex);
  int device = 0;
  check(cudaGetDevice(&device), "cublasLt");
  for (const Loaded& loaded : all) {
    if (loaded.device == device) return loaded.library.get();
  }
  all.push_back({device, load_device_library()});
  return all.back().library.get();
}

#else  // under emulation the library would look for a real device

DeviceLibrary* library_of_current_device() { return nullptr; }

#endif

}  // namespace dhs::cuda
