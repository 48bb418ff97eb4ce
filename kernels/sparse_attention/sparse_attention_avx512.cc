#include "kernels/sparse_attention/sparse_attention_f32.h"

namespace dhs {

AttentionTable attention_table_avx512() { return kTable; }

}  // namespace dhs
