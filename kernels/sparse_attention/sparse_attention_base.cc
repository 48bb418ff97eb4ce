#include "kernels/sparse_attention/sparse_attention_f32.h"

namespace dhs {

AttentionTable attention_table_base() { return kTable; }

}  // namespace dhs
