// How a run goes back to less aggressive codecs: one less aggressive than the most aggressive that its plan uses, as a limit on what the
// next plan may use.
//
// Pure functions; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "lib/broker/events.h"
#include "lib/compression/spec.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::broker {

// None when the plan compresses nothing with loss, neither on links nor of tied gradients. A codec without a known name counts as exact.
std::optional<compression::CodecSpec> MostAggressiveCodec(const RunPlan& plan);

// The job's compression with nothing beyond `limit` in the order of levels fp32, fp16, int8, int4, top-k by ratio. What the job asks for is
// never made more aggressive: it may have a limit of its own.
job::Compression WithCodecLimit(job::Compression compression, const compression::CodecSpec& limit);

}  // namespace fusionllm::broker
