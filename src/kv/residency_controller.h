// When optional residency grows in adaptive mode, how fast, and how index groups share it:
// arithmetic on what the steps did.
//
// When. Not within grow_delay of a release that a requirement forced: memory that is asked back at
// once was not spare. But up to kFloorSelections selections a request it grows at once: below that
// misses rise steeply, and a fixed buffer would hold as much. Not while fetching takes less than
// grow_worth of a step: chunks that stay free let the next admission pass without a release.
//
// How fast. The rows that fill a step's new chunks may take grow_link_share of what the link moves
// in a step; as much is fetched ahead of need into slots that are free, rows evicted last coming
// first. Releases know no limit.
//
// Headroom. Chunks left free for what requests will require in headroom_steps steps, at the rate of
// late. When fewer are free, optional residency is given up until twice as many are, and it grows
// only beyond that.
//
// Shares. A group that caches b rows misses m * b^-a rows a step, with the same power a for all
// (kMissPower, measured) and an m of its own: groups differ 36 times. The bytes fetched,
//   sum over g of s_g * m_g * b_g^-a   with records of s_g bytes, while   sum over g of s_g * b_g
// is given, are least where m_g * b_g^-(1 + a) is the same for all: b_g in proportion to
// m_g^(1 / (1 + a)), its weight, whatever s_g is. What a group cannot use goes to the others in
// proportion. m follows from the rows that a group held and missed, about once a second.
#pragma once

#include <absl/time/time.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dhisparse/config.h"
#include "dhisparse/kv_geometry.h"

namespace dhs {

inline constexpr int64_t kFloorSelections = 2;

class ResidencyController {
 public:
  ResidencyController(const KvGeometry& geometry, const KvCapacity& capacity,
                      const ResidencyConfig& config);

  void set_config(const ResidencyConfig& config) { config_ = config; }

  // A step in which only decoding requests computed did this, by index group; zero: not known.
  void observe(std::span<const GroupTraffic> groups, absl::Duration elapsed);
  // A step begins: what requests require by now, and whether residency was released for it.
  void begin_step(absl::Time now, int64_t required_chunks, bool was_pressed);

  int64_t headroom_chunks() const;
  // That may be added in this step; 0 while residency is not to grow.
  int64_t growth_chunks() const;
  // Rows of a group up to which it may, with so many requests on the device, whatever the delay.
  int64_t floor_rows(int64_t num_requests) const;
  // By index group: rows to fetch in this step out of those it evicted lately, into what is free of
  // capacity_rows; empty: none.
  std::vector<int64_t> refill_rows(std::span<const int64_t> capacity_rows) const;
  // By index group: the rows it should hold are in proportion to it. The largest is 1.
  std::span<const double> weights() const { return weights_; }

 private:
  struct Sums {  // of a group, since the weights were set
    int64_t missed = 0;
    int64_t resident = 0;
  };

  bool may_grow() const;
  bool is_worth_it() const;
  double growth_bytes() const;
  void set_weights();

  const KvGeometry& geometry_;
  const int64_t chunk_bytes_;
  const double link_bytes_per_s_;  // 0: not known
  ResidencyConfig config_;
  std::vector<double> weights_;
  std::vector<Sums> sums_;
  std::vector<int64_t> resident_rows_;  // by group, after the step observed last
  int64_t num_observed_ = 0;
  absl::Time now_ = absl::InfinitePast();
  absl::Time weights_since_ = absl::InfinitePast();
  absl::Time pressed_at_ = absl::InfinitePast();
  int64_t required_chunks_ = 0;
  double new_required_ = 0;   // chunks a step; moving averages from here on
  double step_s_ = 0;         // 0: not known
  double fetched_bytes_ = 0;  // a step
};

}  // namespace dhs
