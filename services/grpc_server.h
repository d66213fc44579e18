// What the gRPC servers of a run have in common: how they listen, and whether they answer.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fusionllm::services {

inline constexpr int kMaxMessageBytes = 64 << 20;  // of plans and profiles; tensors have their own transport

// Starts what was registered, with grpc.health.v1 beside it, on HOST:PORT (0: a free one), and prints "listening on HOST:PORT" on stdout;
// with `logs_json` that is a line of the log instead, unless the port was not said. Errors: Unavailable naming --listen and the address;
// InvalidArgument where `address` is no HOST:PORT.
absl::StatusOr<std::unique_ptr<grpc::Server>> Listen(grpc::ServerBuilder& builder, const std::string& address,
                                                     const std::shared_ptr<grpc::ServerCredentials>& credentials, bool logs_json = false);

// Asks grpc.health.v1 of the server at the other end; blocks up to `timeout`. OK: it serves. Unavailable: it says that it does not, or
// says nothing.
absl::Status CheckHealth(grpc::ChannelInterface& channel, absl::Duration timeout = absl::Seconds(2));

}  // namespace fusionllm::services
