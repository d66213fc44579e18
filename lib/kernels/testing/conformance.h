// What every back end must pass: each op with random data against the reference, and the promises of lib/kernels/backend.h. GoogleTest
// expectations; a back end's own test calls them.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/kernels/testing/op_case.h"

namespace fusionllm::kernels::testing {

// A back end's kernels and where their tensors live. `memory` is borrowed.
struct Target {
  KernelMaker make;
  tensor::Memory* memory = &tensor::HostMemory();

  RunResult Run(const OpCase& op_case, RunOptions options = {}) const {
    options.memory = memory;
    return RunCase(make, op_case, options);
  }
};

// The cases of every forward op, and those of the backward ops that they feed.
std::vector<OpCase> AllCases(uint32_t seed, int size);
std::vector<OpCase> WithBackward(std::vector<OpCase> forward_cases, uint32_t seed);

bool IsParameterGradient(const OpCase& op_case, size_t output);

// Within the case's tolerance, and nothing written besides.
void ExpectSame(const RunResult& want, const RunResult& got, double tolerance);
void ExpectSameBits(const RunResult& want, const RunResult& got);

// Every op against the reference, for seeds 0 .. seeds - 1, in training.
void ExpectAgreement(const Target& target, uint32_t seeds, int size);
void ExpectAgreementInEvaluation(const Target& target, int size);
// Parameter gradients add to what is there where they are asked to.
void ExpectGradientsAdd(const Target& target, int size);
void ExpectMissingOutputsChangeNoOther(const Target& target, const OpCase& op_case);
void ExpectMissingOutputsChangeNoOther(const Target& target, int size);
// Where a kernel says that it runs in place, the bits are the same. Returns whether it does, or how many do.
bool ExpectSameInPlace(const Target& target, const OpCase& op_case);
int ExpectSameInPlace(const Target& target, int size);
// Tokens and labels out of range are reported with their position and value.
void ExpectRangesChecked(const Target& target);
void ExpectLargeOpsAgree(const Target& target);

}  // namespace fusionllm::kernels::testing
