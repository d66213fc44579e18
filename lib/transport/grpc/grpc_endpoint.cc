#include "lib/transport/grpc/grpc_endpoint.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/method_handler.h>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/transport/grpc/grpc_streams.h"
#include "lib/transport/grpc/reconnecting_channel.h"

namespace fusionllm::transport {
namespace {

// Addresses come from peers: without a scheme gRPC would take "unix:5" for a socket file.
constexpr char kTcp[] = "dns:///";
constexpr char kExchange[] = "/fusionllm.v1.Peer/Exchange";

}  // namespace

// Serves fusionllm.v1.Peer with byte buffers in the place of messages, as a generated service would with messages.
class GrpcEndpoint::Service : public grpc::Service {
 public:
  explicit Service(StreamEndpoint& endpoint) {
    using grpc::internal::RpcMethod;
    AddMethod(new grpc::internal::RpcServiceMethod(kExchange, RpcMethod::BIDI_STREAMING,
                                                   new grpc::internal::BidiStreamingHandler<Service, grpc::ByteBuffer, grpc::ByteBuffer>(
                                                       [&endpoint](Service*, grpc::ServerContext* context, ServerStream* stream) {
                                                         ServedStream frames(context, stream);
                                                         return ToGrpc(endpoint.Accept(frames, AuthenticatedNames(*context)));
                                                       },
                                                       this)));
  }
};

class GrpcEndpoint::AddressBook : public Dialer {
 public:
  AddressBook(std::shared_ptr<grpc::ChannelCredentials> credentials, std::chrono::milliseconds keepalive)
      : credentials_(std::move(credentials)), keepalive_(keepalive) {}

  void Set(absl::string_view peer, absl::string_view address) {
    base::MutexLock lock(mu_);
    Entry& entry = entries_[std::string(peer)];
    if (entry.address == address) return;
    entry = {std::string(address), nullptr};
  }
  absl::Status CanReach(absl::string_view peer) const override {
    base::MutexLock lock(mu_);
    if (entries_.count(std::string(peer)) > 0) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no address is known for peer ", std::string(peer)));
  }
  absl::StatusOr<std::unique_ptr<FrameStream>> Dial(absl::string_view peer) override {
    base::MutexLock lock(mu_);
    const auto found = entries_.find(std::string(peer));
    if (found == entries_.end()) return absl::NotFoundError(absl::StrCat("no address is known for peer ", std::string(peer)));
    Entry& entry = found->second;
    if (entry.channel == nullptr) {
      entry.channel = std::make_unique<ReconnectingChannel>(
          [address = entry.address, peer = std::string(peer), credentials = credentials_, keepalive = keepalive_] {
            return MakeChannel(absl::StrCat(kTcp, address), peer, credentials, keepalive);
          });
    }
    return std::make_unique<CallStream>(entry.channel->ChannelForDial(), kExchange, std::vector<std::pair<std::string, std::string>>());
  }

 private:
  struct Entry {
    std::string address;
    std::unique_ptr<ReconnectingChannel> channel;
  };
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const std::chrono::milliseconds keepalive_;
  mutable base::Mutex mu_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

GrpcEndpoint::GrpcEndpoint(EndpointOptions options, std::shared_ptr<AddressBook> addresses)
    : StreamEndpoint(std::move(options), addresses), addresses_(std::move(addresses)) {}

GrpcEndpoint::~GrpcEndpoint() { GrpcEndpoint::Close(); }

absl::StatusOr<std::unique_ptr<GrpcEndpoint>> GrpcEndpoint::Create(EndpointOptions options, GrpcOptions grpc_options) {
  if (grpc_options.server_credentials == nullptr || grpc_options.channel_credentials == nullptr) {
    return absl::InvalidArgumentError("a gRPC endpoint needs credentials for its server and its channels");
  }
  auto addresses = std::make_shared<AddressBook>(grpc_options.channel_credentials, grpc_options.keepalive);
  std::unique_ptr<GrpcEndpoint> endpoint(new GrpcEndpoint(std::move(options), std::move(addresses)));
  endpoint->service_ = std::make_unique<Service>(*endpoint);
  grpc::ServerBuilder builder;
  ConfigureServer(builder, grpc_options.keepalive);
  builder.AddListeningPort(grpc_options.listen_address, grpc_options.server_credentials, &endpoint->port_);
  builder.RegisterService(endpoint->service_.get());
  endpoint->server_ = builder.BuildAndStart();  // tidy-allow: compressed because ConfigureServer refuses them
  if (endpoint->server_ == nullptr || endpoint->port_ == 0) {
    return absl::UnavailableError(absl::StrCat("endpoint ", std::string(endpoint->name()), " cannot listen on ",
                                               grpc_options.listen_address, ": is the address this machine's and the port free?"));
  }
  return endpoint;
}

void GrpcEndpoint::SetPeerAddress(absl::string_view peer, absl::string_view address) { addresses_->Set(peer, address); }

void GrpcEndpoint::Close() {
  StreamEndpoint::Close();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

}  // namespace fusionllm::transport
