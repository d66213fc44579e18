// What every back end must pass of ops on bf16 tensors, beside conformance.h: what lib/kernels/upcast_kernel.h says of them. GoogleTest
// expectations; a back end's own test calls them.
//
// The cases are those of fp32 with their tensors in bf16: all that autodiff's LowerPrecision lowers, all that are no gradients of
// parameters, and any half of these. Each is compared with the same op in fp32 on the very numbers that it computes with.
//
// Tolerances. An output in fp32 (gradients of parameters, statistics, losses): the case's of fp32 (op_case.h). An output in bf16: 2^-8 of
// the number, which is what one rounding may change, beyond the case's; two back ends may round to neighbours, 2^-7 apart. Attention that
// rounds factors of its own (docs/design/adr/0014) does so for heads of 16 and more, and these cases' are smaller; its test has its bounds.
#pragma once

#include "lib/kernels/testing/conformance.h"

namespace fusionllm::kernels::testing {

// The cases of every op, with the types that LowerPrecision would give them.
std::vector<OpCase> LoweredCases(uint32_t seed, int size);

// The bits of the back end's own fp32 kernel, rounded once; parameters are left as fp32 leaves them, and factors are not rounded in place.
// `products` false: but for ops that multiply matrices, whose sums a library may order otherwise for each type.
void ExpectBf16RoundedOnce(const Target& target, int size, Mode mode = Mode::kTrain, bool products = true);
// Within the tolerances of the reference in fp32, and of the reference in bf16.
void ExpectBf16Agreement(const Target& target, int size);
// The same bits from both, which may be one.
void ExpectBf16SameBits(const Target& one, const Target& other, int size);
// Gradients of parameters are added up in fp32. Returns how many were.
int ExpectBf16GradientsAdd(const Target& target, int size);
void ExpectBf16MissingOutputsChangeNoOther(const Target& target, int size);
// Returns how many run in place.
int ExpectBf16SameInPlace(const Target& target, int size);

}  // namespace fusionllm::kernels::testing
