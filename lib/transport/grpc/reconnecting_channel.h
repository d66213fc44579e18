// A channel for those who dial until it is answered, and for whom names matter that come late or move.
//
// A gRPC channel asks for its name again after pauses that grow where there was no answer, to two minutes by its defaults, and after half a
// minute where there was one. GRPC_ARG_MAX_RECONNECT_BACKOFF_MS is for connections alone, and ChannelResetConnectionBackoff did not shorten
// the pauses (1.51: some 30 s after the first minute, with it and without). Names of load balancers and Services may come after those that
// look for them. A new channel asks at once.
//
// Thread-safe; blocks on nothing.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "lib/base/mutex.h"

namespace fusionllm::transport {

class ReconnectingChannel {
 public:
  using Make = std::function<std::shared_ptr<grpc::Channel>()>;
  explicit ReconnectingChannel(Make make, std::chrono::milliseconds every = std::chrono::seconds(2))
      : make_(std::move(make)), every_(every) {}

  // For one dial: the channel of the last one, but a new one in the place of one that has failed to connect and is older than `every`.
  // Calls on one that is replaced keep it.
  std::shared_ptr<grpc::Channel> ChannelForDial();

 private:
  const Make make_;
  const std::chrono::milliseconds every_;
  base::Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point made_at_ ABSL_GUARDED_BY(mu_);
};

}  // namespace fusionllm::transport
