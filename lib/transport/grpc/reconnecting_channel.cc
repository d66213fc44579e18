#include "lib/transport/grpc/reconnecting_channel.h"

namespace fusionllm::transport {

std::shared_ptr<grpc::Channel> ReconnectingChannel::ChannelForDial() {
  const base::MutexLock lock(mu_);
  const auto now = std::chrono::steady_clock::now();
  // Only of a channel whose attempt has failed: one that still connects, over a slow link say, has all the time that gRPC gives it.
  const bool failed = channel_ != nullptr && channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (channel_ == nullptr || (failed && now - made_at_ >= every_)) {
    channel_ = make_();
    made_at_ = now;
  }
  return channel_;
}

}  // namespace fusionllm::transport
