// CRC-32 as zip, PNG and Ethernet use it (reflected polynomial 0xedb88320).
#pragma once

#include <cstdint>
#include <string_view>

namespace dhs::trace {

uint32_t crc32(std::string_view bytes);

}  // namespace dhs::trace
