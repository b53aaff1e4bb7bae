// All metrics of the backend, by name.
#ifndef SEQ2SEQ_BACKEND_TRITON_METRIC_FAMILIES_H_
#define SEQ2SEQ_BACKEND_TRITON_METRIC_FAMILIES_H_

#include "backend/triton/metric.h"

namespace seq2seq {

// Owned by the backend, shared by all its models and their instances. Labels: model, version,
// instance (Triton's instance name), and for requests the outcome.
struct MetricFamilies {
  MetricFamily active_sequences{TRITONSERVER_METRIC_KIND_GAUGE, "seq2seq_active_sequences",
                                "Sequences in the running batch"};
  // Of an instance: sequences that it has taken from the model's queue and that are not in its
  // running batch yet. Of instance="queue": requests that wait in the model's queue, before any
  // instance took them. The sum over the label is everything that waits.
  MetricFamily waiting_sequences{TRITONSERVER_METRIC_KIND_GAUGE, "seq2seq_waiting_sequences",
                                 "Sequences that wait for a place in the running batch"};
  MetricFamily kv_blocks_used{TRITONSERVER_METRIC_KIND_GAUGE, "seq2seq_kv_blocks_used",
                              "KV-cache blocks reserved by sequences"};
  MetricFamily kv_blocks_total{TRITONSERVER_METRIC_KIND_GAUGE, "seq2seq_kv_blocks_total",
                               "KV-cache blocks of the instance's pool"};
  MetricFamily requests{TRITONSERVER_METRIC_KIND_COUNTER, "seq2seq_requests_total",
                        "Requests that have ended, by outcome"};
  MetricFamily generated_tokens{TRITONSERVER_METRIC_KIND_COUNTER, "seq2seq_generated_tokens_total",
                                "New tokens generated"};
  MetricFamily source_tokens{TRITONSERVER_METRIC_KIND_COUNTER, "seq2seq_source_tokens_total",
                             "Source tokens encoded"};
};

}  // namespace seq2seq

#endif  // SEQ2SEQ_BACKEND_TRITON_METRIC_FAMILIES_H_
