#include "kernels/gather/gather.h"

namespace dhs {

void gather_ref(const GatherParams& params) {
  for (int32_t i = 0; i < *params.num_orders; ++i) {
    const FetchOrder& order = params.orders(i);
    const std::byte* source = params.host.at(order.host_row);
    std::byte* target = params.slots.at(order.slot);
    for (int64_t b = params.first_byte; b < params.host.record_bytes; ++b) target[b] = source[b];
  }
}

}  // namespace dhs
