// Random numbers that depend on seed and token index alone, the same on host and device.
#ifndef SEQ2SEQ_BACKEND_ENGINE_PHILOX_H_
#define SEQ2SEQ_BACKEND_ENGINE_PHILOX_H_

#include <array>
#include <cstdint>

namespace seq2seq {

// Philox4x32-10: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 3.3.
// Pure function of counter and key.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

// The uniform number in [0, 1) that draws the generated token number `index` (0: the first after
// the prefix) of a request with this seed. Every engine computes exactly this:
//   key = {low, high 32 bits of seed}, counter = {low, high 32 bits of index, 0, 0};
//   the upper 24 bits of the block's first word, times 2^-24.
constexpr float TokenUniform(uint64_t seed, uint64_t index) {
  const std::array<uint32_t, 4> block =
      Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(block[0] >> 8) * 0x1p-24F;
}

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_ENGINE_PHILOX_H_
