// CUDA's device functions, in terms of the runtime's few services.
//
// Every function that can be part of a diagnosis takes the caller's source location as a default
// argument, so that reports name the kernel's line.
#pragma once

#include "simt/emu/builtins.h"
#include "simt/emu/memory_functions.h"
#include "simt/emu/scalar_functions.h"
#include "simt/emu/small_floats.h"
#include "simt/emu/warp_functions.h"
