// cublaslt_api: the few functions of cuBLASLt that the library path calls, behind a table, so that
// the program starts without the library and tests bring a table of their own.
#pragma once

#include <cublasLt.h>

namespace dhs {

// Declared in dhisparse/device.h, which kernels do not include. Null when either is missing.
void* load_library_symbol(const char* library, const char* symbol);

namespace cuda {

struct CublasLtApi {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_config_get = nullptr;
};

using SymbolLoader = void* (*)(const char* library, const char* symbol);

// False when the library or one of the functions is missing.
inline bool load_cublaslt(SymbolLoader load, CublasLtApi& api) {
  bool is_complete = true;
  auto find = [&](auto& function, const char* symbol) {
    if (!is_complete) return;  // do not search on for a library that is not there
    void* address = load("libcublasLt.so.13", symbol);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    is_complete = address != nullptr;
  };
  find(api.create, "cublasLtCreate");
  find(api.matmul, "cublasLtMatmul");
  find(api.desc_create, "cublasLtMatmulDescCreate");
  find(api.desc_destroy, "cublasLtMatmulDescDestroy");
  find(api.desc_set, "cublasLtMatmulDescSetAttribute");
  find(api.layout_create, "cublasLtMatrixLayoutCreate");
  find(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(api.preference_create, "cublasLtMatmulPreferenceCreate");
  find(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(api.get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(api.algo_check, "cublasLtMatmulAlgoCheck");
  find(api.algo_config_get, "cublasLtMatmulAlgoConfigGetAttribute");
  return is_complete;
}

}  // namespace cuda
}  // namespace dhs
