// The job's compression policy as the scheduler sees it: which codec a pair of stages would use, what it weighs and what it costs.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "lib/compression/policy.h"
#include "lib/job/fusion_job.h"
#include "lib/scheduler/codec_policy.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

compression::Policy PolicyOf(const job::Compression& compression);

// Answers repeat in a search, so they are remembered; a lock keeps that safe between threads.
class CompressionPolicy final : public scheduler::LinkCodecPolicy {
 public:
  // `reference`: the device whose codec times count for time_scale 1.
  CompressionPolicy(compression::Policy policy, const wire::DeviceProfile& reference) : policy_(policy), codecs_(reference.codecs) {}

  scheduler::LinkCodec Choose(const scheduler::LinkTraffic& traffic) const override;
  double MaxRatio() const override;

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, double, double, double>;
  scheduler::LinkCodec Price(const scheduler::LinkTraffic& traffic) const;
  wire::CodecProfile CostOf(compression::CodecKind kind) const;

  const compression::Policy policy_;
  const std::map<std::string, wire::CodecProfile> codecs_;
  mutable std::mutex mutex_;
  mutable std::map<Key, scheduler::LinkCodec> remembered_;
};

}  // namespace fusionllm::planning
