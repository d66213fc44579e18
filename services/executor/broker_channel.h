// Channels from an executor to its broker.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace fusionllm::services {

// Dials when it is used and again whenever the connection breaks, every second at least. `own_connection`: shares its connection with no
// other channel of the process, so that bulk does not stand before reports and orders.
std::shared_ptr<grpc::Channel> BrokerChannel(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                             bool own_connection);

}  // namespace fusionllm::services
