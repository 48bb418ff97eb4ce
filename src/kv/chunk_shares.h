// How many chunks each index group's row cache should hold, by what one more chunk would save.
//
// Measuring. A hit's age is the number of passes since the row's last selection: the tick of the
// pass less the slot's stamp, which resolve reads anyway, over the ticks from pass to pass (claims
// count too). Counting hits by powers of two of their age costs one addition a hit, and says what a
// cache of any smaller size would miss:
//   u(a)  rows of a pass that were last selected more than `a` passes before, or missed
//   F(a)  = u(0) + u(1) + ... + u(a-1), the distinct rows of `a` passes in a row: a window grows by
//         what it did not hold already (the working set's law, Denning and Schwartz, CACM 1972)
// An exact LRU cache of F(a) rows misses u(a) rows a pass, so (F(a), u(a)) are points of its miss
// curve. Ages within a bucket count as evenly spread. What rows beyond the measured capacity would
// save nobody has seen; the curve goes on as the power law through its last two points, and is 0
// where every row of the running requests is cached.
//
// Sharing. With m_g(r) the misses a pass of group g with r rows, the bytes fetched over the link,
//   sum over g of record_bytes_g * m_g(rows_per_chunk_g * chunks_g)
// are to be least, with so many chunks and between min_chunks and max_chunks for each. Chunks are
// equal, so saved bytes per byte of device memory rank as saved bytes per chunk do; with convex
// curves (the lower envelope is taken) each further chunk saves less, and handing out one chunk
// after another to whoever saves most with it is optimal: O((chunks + groups) log groups).
//
// Use, by the controller of adaptive residency: about once a second it takes the counts since the
// last time from a report, makes the curves, shares out the chunks that are not index keys, and
// moves KvManager's targets a bounded number of chunks towards the result: chunks are released at
// once and grown slowly, and not at all where a chunk saves less than 1 % of a step's link time.
// min_chunks is what admission requires, max_chunks what the running requests can fill. One group's
// release is another's growth within the same step, so no free memory is needed to move.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace dhs {

// Bucket j counts ages 2^j .. 2^(j+1) - 1; the last one all beyond, too.
inline constexpr int kNumAgeBuckets = 16;
constexpr int age_bucket(int64_t age) {  // age >= 1
  int bucket = 0;
  for (; age > 1 && bucket < kNumAgeBuckets - 1; age /= 2) ++bucket;
  return bucket;
}

// What resolve counted for one index group since the last time.
struct RowReuse {
  int64_t num_passes = 0;
  std::array<int64_t, kNumAgeBuckets> hits_by_age{};
  int64_t num_missed = 0;
  int64_t capacity_rows = 0;  // of the row cache, while it was counted
};

struct MissPoint {
  double rows = 0;
  double missed = 0;  // rows a pass
};
// By rising rows, from none to as many as can be asked for: missed falls, and ever more slowly.
// Beyond its last point it is 0; without a point it is 0 everywhere.
using RowMissCurve = std::vector<MissPoint>;

// max_rows: rows of the running requests' contexts. Empty when nothing was counted.
RowMissCurve miss_curve(const RowReuse& reuse, int64_t max_rows);
double misses_at(const RowMissCurve& curve, double rows);

struct ChunkClaim {  // of one index group
  RowMissCurve curve;
  int64_t record_bytes = 0;
  int64_t rows_per_chunk = 0;
  int64_t min_chunks = 0;
  int64_t max_chunks = 0;
};

// Chunks of every group; less than num_chunks together only where all have max_chunks. Ties go to
// the lower group. Precondition: the min_chunks fit in num_chunks, none is above its max_chunks.
std::vector<int64_t> share_chunks(std::span<const ChunkClaim> claims, int64_t num_chunks);

}  // namespace dhs
