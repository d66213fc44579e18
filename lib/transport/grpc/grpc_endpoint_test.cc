#include "lib/transport/grpc/grpc_endpoint.h"

#include <grpcpp/grpcpp.h>

#include <set>

#include "lib/transport/grpc/frame_bytes.h"
#include "lib/transport/testing/endpoint_conformance.h"
#include "lib/transport/testing/mailbox.h"
#include "proto/fusionllm/v1/peer.grpc.pb.h"

namespace fusionllm::transport::testing {
namespace {

// Every endpoint knows every other's address, whichever is made first. Endpoints tell the book when they go.
class GrpcCarrier : public Carrier {
 public:
  std::unique_ptr<Endpoint> Make(EndpointOptions options) override {
    GrpcOptions grpc_options;
    grpc_options.server_credentials = grpc::InsecureServerCredentials();
    grpc_options.channel_credentials = grpc::InsecureChannelCredentials();
    auto made = GrpcEndpoint::Create(std::move(options), std::move(grpc_options));
    EXPECT_TRUE(made.ok()) << made.status();
    auto endpoint = std::make_unique<Listed>(this, *std::move(made));
    addresses_[std::string(endpoint->name())] = "127.0.0.1:" + std::to_string(endpoint->inner->port());
    live_.insert(endpoint.get());
    for (Listed* one : live_) {
      for (const auto& [peer, address] : addresses_) one->inner->SetPeerAddress(peer, address);
    }
    return endpoint;
  }

 private:
  struct Listed : Endpoint {
    Listed(GrpcCarrier* carrier, std::unique_ptr<GrpcEndpoint> inner) : carrier(carrier), inner(std::move(inner)) {}
    ~Listed() override { carrier->live_.erase(this); }
    absl::string_view name() const override { return inner->name(); }
    absl::Status Send(absl::string_view peer, const MessageHeader& header, Payload payload) override {
      return inner->Send(peer, header, std::move(payload));
    }
    absl::Status CanSend(absl::string_view peer, const MessageHeader& header, size_t bytes) const override {
      return inner->CanSend(peer, header, bytes);
    }
    void SetReceiver(Receiver receiver) override { inner->SetReceiver(std::move(receiver)); }
    void SetPeerFailure(PeerFailure callback) override { inner->SetPeerFailure(std::move(callback)); }
    void CancelEpoch(uint32_t epoch) override { inner->CancelEpoch(epoch); }
    void ForgetPeer(absl::string_view peer) override { inner->ForgetPeer(peer); }
    bool ForgetPreviousIncarnation(absl::string_view peer, uint64_t incarnation) override {
      return inner->ForgetPreviousIncarnation(peer, incarnation);
    }
    LinkStats stats(absl::string_view peer) const override { return inner->stats(peer); }
    void Close() override { inner->Close(); }
    GrpcCarrier* carrier;
    std::unique_ptr<GrpcEndpoint> inner;
  };
  std::map<std::string, std::string> addresses_;
  std::set<Listed*> live_;
};

INSTANTIATE_TEST_SUITE_P(Grpc, EndpointConformance, ::testing::Values(CarrierCase{"grpc", [] { return std::make_unique<GrpcCarrier>(); }}));

Frame SampleFrame(size_t payload_bytes) {
  Frame frame;
  frame.sequence = 3;
  frame.message_bytes = payload_bytes;
  frame.payload.push_back(Payload::Of(std::string(payload_bytes, 'x')));
  Seal(frame);
  return frame;
}

grpc::ByteBuffer Buffer(const std::string& bytes, size_t cut) {
  const grpc::Slice slices[2] = {grpc::Slice(bytes.substr(0, cut)), grpc::Slice(bytes.substr(cut))};
  return grpc::ByteBuffer(slices, 2);
}

TEST(FrameBytes, AreTheBytesThatProtobufWouldMake) {
  for (const size_t size : {0, 1, 127, 128, 4096, 4097, 100'000}) {
    const Frame frame = SampleFrame(size);
    const auto header = EncodeHeader(frame);
    v1::Frame message;
    message.set_header(header.data(), header.size());
    message.set_payload(std::string(size, 'x'));
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(EncodeFrame(frame).Dump(&slices).ok());
    std::string bytes;
    for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    EXPECT_EQ(bytes, message.SerializeAsString());
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{50}, bytes.size() - 1, bytes.size()}) {
      absl::StatusOr<Frame> decoded = DecodeFrame(Buffer(bytes, cut));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_TRUE(Verify(*decoded).ok());
      EXPECT_EQ(decoded->payload_bytes(), size);
    }
  }
}

TEST(FrameBytes, BytesThatAreNoFrameAreRefused) {
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(EncodeFrame(SampleFrame(300)).Dump(&slices).ok());
  std::string good;
  for (const grpc::Slice& slice : slices) good.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(DecodeFrame(Buffer(good.substr(0, size), size / 2)).ok() && size != 82) << size;
  EXPECT_FALSE(DecodeFrame(Buffer(good + "x", 10)).ok());
  std::string endless = good;
  for (size_t i = 83; i < 95; ++i) endless[i] = '\xff';  // a length that never ends
  EXPECT_EQ(DecodeFrame(Buffer(endless, 10)).status().code(), absl::StatusCode::kInvalidArgument);
}

// Sends hand-made frames to an endpoint through the generated stub, as a foreign or hostile client would.
absl::Status SendRaw(int port, const std::vector<std::string>& headers) {
  auto stub = v1::Peer::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Exchange(&context);
  for (const std::string& header : headers) {
    v1::Frame frame;
    frame.set_header(header);
    if (!stream->Write(frame)) break;
  }
  stream->WritesDone();
  v1::Frame answer;
  while (stream->Read(&answer)) {
  }
  const grpc::Status status = stream->Finish();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

TEST(GrpcEndpoint, RejectsForeignClientsWithReason) {
  EndpointOptions options;
  options.name = "b";
  auto endpoint = GrpcEndpoint::Create(
      options, {.server_credentials = grpc::InsecureServerCredentials(), .channel_credentials = grpc::InsecureChannelCredentials()});
  ASSERT_TRUE(endpoint.ok());
  const int port = (*endpoint)->port();
  EXPECT_EQ(SendRaw(port, {"short"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SendRaw(port, {std::string(80, '\0')}).code(), absl::StatusCode::kFailedPrecondition);
  const auto header = EncodeHeader(SampleFrame(0));
  std::string other_version(reinterpret_cast<const char*>(header.data()), header.size());
  other_version[4] = 2;
  const absl::Status status = SendRaw(port, {other_version});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("version 2"), std::string::npos) << status;
}

TEST(GrpcEndpoint, APortInUseIsAnError) {
  EndpointOptions options;
  options.name = "a";
  GrpcOptions grpc_options;
  grpc_options.server_credentials = grpc::InsecureServerCredentials();
  grpc_options.channel_credentials = grpc::InsecureChannelCredentials();
  auto first = GrpcEndpoint::Create(options, grpc_options);
  ASSERT_TRUE(first.ok());
  grpc_options.listen_address = "127.0.0.1:" + std::to_string((*first)->port());
  EXPECT_EQ(GrpcEndpoint::Create(options, grpc_options).status().code(), absl::StatusCode::kUnavailable);
}

TEST(GrpcEndpoint, APeerWithoutAnAddressIsNotFound) {
  EndpointOptions options;
  options.name = "a";
  auto endpoint = GrpcEndpoint::Create(
      options, {.server_credentials = grpc::InsecureServerCredentials(), .channel_credentials = grpc::InsecureChannelCredentials()});
  ASSERT_TRUE(endpoint.ok());
  EXPECT_EQ((*endpoint)->Send("b", {}, Payload()).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace fusionllm::transport::testing
