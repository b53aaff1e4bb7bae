// What the device reaches at most, measured beside the kernels that are held against it.
#ifndef SEQ2SEQ_BENCHMARKS_KERNELS_CEILINGS_H_
#define SEQ2SEQ_BENCHMARKS_KERNELS_CEILINGS_H_

namespace seq2seq {

struct Ceilings {
  double bytes_per_second = 0.0;       // a device-to-device copy, read and written bytes together
  double operations_per_second = 0.0;  // a large bfloat16 product by cuBLASLt
};

// The best of several repetitions of each; takes 5 GB of the device's memory meanwhile.
Ceilings MeasureCeilings();

}  // namespace seq2seq

#endif  // SEQ2SEQ_BENCHMARKS_KERNELS_CEILINGS_H_
