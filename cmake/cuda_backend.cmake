# dhs_cuda_backend: what a program links to run on GPUs: the CUDA device, every op's kernels and the
# static CUDA runtime, which looks for a driver at run time. Empty in a build without CUDA. Included
# after the ops have named themselves in DHS_CUDA_OPS.
add_library(dhs_cuda_backend INTERFACE)
if(DHS_CUDA_WANTED)
  get_property(cuda_ops GLOBAL PROPERTY DHS_CUDA_OPS)
  target_sources(dhs_cuda_backend INTERFACE $<TARGET_OBJECTS:dhs_device_cuda>)
  foreach(op ${cuda_ops})
    target_sources(dhs_cuda_backend INTERFACE $<TARGET_OBJECTS:dhs_cuda_${op}>)
    if(TARGET dhs_cuda_${op}_sm90a)
      target_sources(dhs_cuda_backend INTERFACE $<TARGET_OBJECTS:dhs_cuda_${op}_sm90a>)
    endif()
  endforeach()
  target_link_libraries(dhs_cuda_backend INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS} rt)
endif()
