#include "kv/chunk_shares.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "dhisparse/base.h"

namespace dhs {
namespace {

// The measured points that a cache of `capacity_rows` can know, the last one at its capacity.
RowMissCurve measured_points(const RowReuse& reuse) {
  const auto num_passes = static_cast<double>(reuse.num_passes);
  double older = static_cast<double>(reuse.num_missed);
  for (int64_t hits : reuse.hits_by_age) older += static_cast<double>(hits);
  older /= num_passes;
  RowMissCurve points = {{0, older}};
  const auto capacity = static_cast<double>(reuse.capacity_rows);
  double window_rows = 0;  // F(2^j - 1)
  for (int j = 0; j < kNumAgeBuckets; ++j) {
    const double width = std::exp2(j);
    const double in_bucket = static_cast<double>(reuse.hits_by_age[j]) / num_passes;
    window_rows += width * older - in_bucket * (width - 1) / 2;
    older -= in_bucket;
    // The bucket in which rows are being evicted has lost some of its hits.
    if (window_rows >= capacity) break;
    if (in_bucket > 0) points.push_back({window_rows, older});
  }
  const double missed = static_cast<double>(reuse.num_missed) / num_passes;
  // Where no older row was hit, the capacity says nothing that the last window does not.
  if (capacity > points.back().rows && missed < points.back().missed) {
    points.push_back({capacity, missed});
  }
  return points;
}

// Doublings of the last point along the power law through the last two, up to max_rows.
void extrapolate(RowMissCurve& points, double max_rows) {
  const MissPoint last = points.back();
  const MissPoint before = points[points.size() - 2];
  if (before.rows <= 0 || last.missed <= 0 || last.missed >= before.missed) return;
  const double power = std::log(before.missed / last.missed) / std::log(last.rows / before.rows);
  for (double factor = 2; last.rows * factor < max_rows; factor *= 2) {
    points.push_back({last.rows * factor, last.missed * std::pow(factor, -power)});
  }
}

double slope(const MissPoint& a, const MissPoint& b) {
  return (b.missed - a.missed) / (b.rows - a.rows);
}

// The largest convex function that is nowhere above the points.
RowMissCurve lower_envelope(const RowMissCurve& points) {
  RowMissCurve hull;
  for (const MissPoint& point : points) {
    while (hull.size() >= 2 &&
           slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), point)) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
  return hull;
}

// What the group's next chunk saves, in bytes a pass.
double gain(const ChunkClaim& claim, int64_t chunks) {
  const auto rows = static_cast<double>(chunks * claim.rows_per_chunk);
  const double after = rows + static_cast<double>(claim.rows_per_chunk);
  return static_cast<double>(claim.record_bytes) *
         (misses_at(claim.curve, rows) - misses_at(claim.curve, after));
}

struct Offer {
  double gain;
  size_t group;
  bool operator<(const Offer& other) const {  // the best is the greatest
    return gain != other.gain ? gain < other.gain : group > other.group;
  }
};

}  // namespace

RowMissCurve miss_curve(const RowReuse& reuse, int64_t max_rows) {
  if (reuse.num_passes == 0) return {};
  RowMissCurve points = measured_points(reuse);
  if (points.size() >= 2) extrapolate(points, static_cast<double>(max_rows));
  const auto limit = static_cast<double>(max_rows);
  std::erase_if(points, [&](const MissPoint& point) { return point.rows >= limit; });
  points.push_back({limit, 0});
  return lower_envelope(points);
}

double misses_at(const RowMissCurve& curve, double rows) {
  const auto below = std::upper_bound(curve.begin(), curve.end(), rows,
                                      [](double r, const MissPoint& p) { return r < p.rows; });
  if (below == curve.end()) return 0;
  if (below == curve.begin()) return below->missed;
  const MissPoint& above = *(below - 1);
  return above.missed + (rows - above.rows) * slope(above, *below);
}

std::vector<int64_t> share_chunks(std::span<const ChunkClaim> claims, int64_t num_chunks) {
  std::vector<int64_t> shares;
  std::priority_queue<Offer> offers;
  const auto offer = [&](size_t group) {
    if (shares[group] == claims[group].max_chunks) return;
    offers.push({gain(claims[group], shares[group]), group});
  };
  for (size_t group = 0; group < claims.size(); ++group) {
    const ChunkClaim& claim = claims[group];
    DHS_CHECK(claim.min_chunks >= 0 && claim.min_chunks <= claim.max_chunks, "group ", group,
              " claims ", claim.min_chunks, " to ", claim.max_chunks, " chunks");
    shares.push_back(claim.min_chunks);
    num_chunks -= claim.min_chunks;
    offer(group);
  }
  DHS_CHECK(num_chunks >= 0, -num_chunks, " chunks too few for what the groups require");
  for (; num_chunks > 0 && !offers.empty(); --num_chunks) {
    const size_t group = offers.top().group;
    offers.pop();
    ++shares[group];
    offer(group);
  }
  return shares;
}

}  // namespace dhs
