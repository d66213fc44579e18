#include "services/executor/broker_channel.h"

#include "lib/security/grpc_messages/uncompressed_messages.h"

namespace fusionllm::services {
namespace {

// Both ends send keepalives at the same pace; a broker that asks for less often would close the connection ("too many pings").
constexpr int kKeepaliveMs = 20'000;

}  // namespace

std::shared_ptr<grpc::Channel> BrokerChannel(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                             bool own_connection) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);  // also the time that one attempt to connect may take
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  if (own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  security::RefuseCompressedMessages(arguments);
  // The broker is known by its name in a certificate of the job's CA, whatever the address under which it is dialled.
  arguments.SetSslTargetNameOverride("broker");
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace fusionllm::services
