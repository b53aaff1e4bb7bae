// Names for places in an engine, shared by those who account for them and those who own them.
#ifndef SEQ2SEQ_BACKEND_CORE_IDS_H_
#define SEQ2SEQ_BACKEND_CORE_IDS_H_

#include <cstdint>

namespace seq2seq {

using SlotId = int32_t;   // a running sequence's place: 0 .. EngineInfo::max_slots - 1
using BlockId = int32_t;  // a KV-cache block: 0 .. EngineInfo::total_blocks - 1

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_CORE_IDS_H_
