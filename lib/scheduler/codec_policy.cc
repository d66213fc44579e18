#include "lib/scheduler/codec_policy.h"

#include <algorithm>
#include <cmath>

namespace fusionllm::scheduler {
namespace {

int64_t Shrunk(int64_t bytes, double ratio) { return static_cast<int64_t>(std::ceil(static_cast<double>(bytes) / ratio)); }

bool Hides(int64_t bytes, double bytes_per_s, double target_s) { return static_cast<double>(bytes) <= bytes_per_s * target_s; }

double RatioOf(const LinkTraffic& traffic, int64_t forward_wire, int64_t backward_wire) {
  const int64_t wire = forward_wire + backward_wire;
  return wire > 0 ? static_cast<double>(traffic.forward_bytes + traffic.backward_bytes) / static_cast<double>(wire) : 1;
}

LinkCodec Exact(const LinkTraffic& traffic) {
  return {.forward_wire_bytes = traffic.forward_bytes + traffic.forward_lossless_bytes, .backward_wire_bytes = traffic.backward_bytes};
}

}  // namespace

void ExactPolicy::Choose(std::span<const LinkTraffic> links, double, std::span<LinkCodec> codecs) const {
  for (size_t l = 0; l < links.size(); ++l) codecs[l] = Exact(links[l]);
}

double CodecLevelPolicy::MaxRatio() const {
  double most = 1;
  for (const CodecLevel& level : levels_) most = std::max({most, level.forward_ratio, level.backward_ratio});
  return most;
}

void CodecLevelPolicy::Choose(std::span<const LinkTraffic> links, double target_s, std::span<LinkCodec> codecs) const {
  for (size_t l = 0; l < links.size(); ++l) codecs[l] = ChooseOne(links[l], target_s);
}

LinkCodec CodecLevelPolicy::ChooseOne(const LinkTraffic& traffic, double target_s) const {
  LinkCodec choice = Exact(traffic);
  if (traffic.forward_bytes + traffic.backward_bytes == 0) return choice;
  for (const CodecLevel& level : levels_) {
    const int64_t forward = Shrunk(traffic.forward_bytes, level.forward_ratio);
    const int64_t backward = Shrunk(traffic.backward_bytes, level.backward_ratio);
    choice = {.codec = level.name,
              .ratio = RatioOf(traffic, forward, backward),
              .forward_wire_bytes = forward + traffic.forward_lossless_bytes,
              .backward_wire_bytes = backward,
              .loss_cost = level.loss_cost};
    if (Hides(choice.forward_wire_bytes, traffic.forward_bytes_per_s, target_s) &&
        Hides(choice.backward_wire_bytes, traffic.backward_bytes_per_s, target_s)) {
      break;
    }
  }
  return choice;
}

}  // namespace fusionllm::scheduler
