#include "kernels/index_score/index_score_f32.h"

namespace dhs {

IndexScoreTable index_score_table_avx512() { return kTable; }

}  // namespace dhs
