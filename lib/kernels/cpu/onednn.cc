#include "lib/kernels/cpu/onednn.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lib/kernels/cpu/gemm.h"
#include "oneapi/dnnl/dnnl.h"

// oneDNN's OpenMP runtime; declared here because nothing else of it is used.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace fusionllm::kernels::cpu {
namespace {

absl::string_view InstructionSet() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
    case dnnl_cpu_isa_avx2_vnni:
      return "AVX2";
    case dnnl_cpu_isa_avx512_core:
    case dnnl_cpu_isa_avx512_core_vnni:
    case dnnl_cpu_isa_avx512_core_bf16:
    case dnnl_cpu_isa_avx512_core_amx:
      return "AVX-512";
    default:
      return "another instruction set";
  }
}

}  // namespace

std::string DescribeOneDnn() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat("oneDNN ", version->major, ".", version->minor, ".", version->patch, " (", InstructionSet(), ")");
}

SingleThreadedOneDnn::SingleThreadedOneDnn() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

SingleThreadedOneDnn::~SingleThreadedOneDnn() {
  if (before_ != 1) omp_set_num_threads(before_);
}

void Multiply(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  const dnnl_status_t status =
      dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  // It refuses only malformed sizes: our own bug.
  if (status != dnnl_success) std::abort();
}

}  // namespace fusionllm::kernels::cpu
