// What the loader looks for in cuBLASLt; with PARTIAL not all of it.
extern "C" {
#define SEQ2SEQ_FAKE(name) \
  int name() { return 0; }
SEQ2SEQ_FAKE(cublasLtCreate)
SEQ2SEQ_FAKE(cublasLtDestroy)
SEQ2SEQ_FAKE(cublasLtMatmulDescCreate)
SEQ2SEQ_FAKE(cublasLtMatmulDescDestroy)
SEQ2SEQ_FAKE(cublasLtMatmulDescSetAttribute)
SEQ2SEQ_FAKE(cublasLtMatrixLayoutCreate)
SEQ2SEQ_FAKE(cublasLtMatrixLayoutDestroy)
SEQ2SEQ_FAKE(cublasLtMatmulPreferenceCreate)
SEQ2SEQ_FAKE(cublasLtMatmulPreferenceDestroy)
SEQ2SEQ_FAKE(cublasLtMatmulPreferenceSetAttribute)
SEQ2SEQ_FAKE(cublasLtMatmulAlgoGetHeuristic)
SEQ2SEQ_FAKE(cublasLtMatmul)
#ifndef PARTIAL
SEQ2SEQ_FAKE(cublasLtMatmulAlgoCheck)
#endif
}
