// The job's compression policy as the scheduler sees it: which codec a pair of stages would use, what it weighs and what it costs.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/compression/policy.h"
#include "lib/job/fusion_job.h"
#include "lib/scheduler/codec_policy.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

// Of its compression, and how long it trains.
compression::Policy PolicyOf(const job::Spec& spec);

// Answers repeat in a search, so they are remembered; a lock keeps that safe between threads.
class CompressionPolicy final : public scheduler::LinkCodecPolicy {
 public:
  // `reference`: the device whose codec times count for time_scale 1.
  CompressionPolicy(compression::Policy policy, const wire::DeviceProfile& reference) : policy_(policy), codecs_(reference.codecs) {}

  void Choose(std::span<const scheduler::LinkTraffic> links, double target_s, std::span<scheduler::LinkCodec> codecs) const override;
  double MaxRatio() const override;
  double MaxDirectionRatio() const override;

 private:
  using Key = std::vector<double>;  // every number of the question
  std::vector<scheduler::LinkCodec> Price(std::span<const scheduler::LinkTraffic> links, double target_s) const;
  scheduler::LinkCodec Describe(const scheduler::LinkTraffic& traffic, const compression::LinkChoice& choice) const;
  struct MessageSeconds {
    double encode = 0, decode = 0;
  };
  // Of a message that brings so many values by this codec.
  MessageSeconds SecondsOf(const compression::CodecSpec& spec, int64_t elements) const;

  const compression::Policy policy_;
  const std::map<std::string, wire::CodecProfile> codecs_;
  mutable base::Mutex mutex_;
  mutable std::map<Key, std::vector<scheduler::LinkCodec>> remembered_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::planning
