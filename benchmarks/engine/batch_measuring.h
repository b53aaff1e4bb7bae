// Measures an engine for a driver in another process: a line of JSON in, a line of JSON out.
#ifndef SEQ2SEQ_BENCHMARKS_ENGINE_BATCH_MEASURING_H_
#define SEQ2SEQ_BENCHMARKS_ENGINE_BATCH_MEASURING_H_

#include <cstdint>
#include <istream>
#include <ostream>

#include "backend/engine/engine_factory.h"

namespace seq2seq {

// Answers every line of `in` by a line of `out`, in order, until `in` ends:
//
//   {"sources": [[id, ...], ...], "new_tokens": n}
//   {"seconds": s, "first_token_seconds": s, "ids": [[id, ...], ...]}  or  {"error": "why"}
//
// A line is one batch: greedy, n new tokens a sequence after `start_token`, EOS suppressed. Times
// count from its start, until the last token and until every sequence has one. Decoding begins when
// all sources are encoded.
//
// The engine is one of `factory` with `options`, made for a batch of this size and these lengths,
// and kept as long as they stay the same.
void MeasureBatches(EngineFactory& factory, const EngineOptions& options, int32_t start_token,
                    std::istream& in, std::ostream& out);

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_ENGINE_BATCH_MEASURING_H_
