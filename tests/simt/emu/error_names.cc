// cudaGetErrorName and cudaGetErrorString for the errors that the emulator gives.
#include <cuda_runtime_api.h>

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define DHS_SIMT_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    DHS_SIMT_ERROR(cudaSuccess, "no error"),
    DHS_SIMT_ERROR(cudaErrorInvalidValue, "invalid argument"),
    DHS_SIMT_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    DHS_SIMT_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    DHS_SIMT_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    DHS_SIMT_ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    DHS_SIMT_ERROR(cudaErrorInsufficientDriver,
                   "CUDA driver version is insufficient for CUDA runtime version"),
    DHS_SIMT_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    DHS_SIMT_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    DHS_SIMT_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    DHS_SIMT_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    DHS_SIMT_ERROR(cudaErrorNotReady, "device not ready"),
    DHS_SIMT_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    DHS_SIMT_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                   "part or all of the requested memory range is already mapped"),
    DHS_SIMT_ERROR(cudaErrorHostMemoryNotRegistered,
                   "pointer does not correspond to a registered memory region"),
    DHS_SIMT_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    DHS_SIMT_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    DHS_SIMT_ERROR(cudaErrorNotSupported, "operation not supported"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureMerge,
                   "operation would result in a merge of separate capture sequences"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureUnmatched,
                   "capture was not ended in the same stream as it began"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureIsolation,
                   "dependency created on uncaptured work in another stream"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureImplicit,
                   "operation would make the legacy stream depend on a capturing blocking stream"),
    DHS_SIMT_ERROR(cudaErrorCapturedEvent,
                   "operation not permitted on an event last recorded in a capturing stream"),
    DHS_SIMT_ERROR(cudaErrorStreamCaptureWrongThread,
                   "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef DHS_SIMT_ERROR

constexpr ErrorText kUnknown = {cudaErrorUnknown, "cudaErrorUnknown", "unrecognized error code"};

const ErrorText& text_of(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return known;
  }
  return kUnknown;
}

}  // namespace

extern "C" const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
extern "C" const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }
