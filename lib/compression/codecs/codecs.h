// The codecs, one file each; registry.cc puts them into one registry. Private to lib/compression.
#pragma once

#include "lib/compression/registry.h"

namespace fusionllm::compression::codecs {

const Codec& Fp32();
const Codec& Fp16();
const Codec& Bf16();
const Codec& Int8();
const Codec& Int4();
const Codec& TopK();

// As schemas of jobs list them.
inline constexpr const Codec& (*kAll[])() = {TopK, Int8, Int4, Fp16, Bf16, Fp32};

}  // namespace fusionllm::compression::codecs
