#include "lib/transport/grpc/reconnecting_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <string>

#include "lib/transport/testing/name_server.h"

namespace fusionllm::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Answers no call; a client can connect.
struct Server {
  Server() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
  }
  ~Server() { server->Shutdown(std::chrono::system_clock::now()); }
  int port = 0;
  grpc::CallbackGenericService service;
  std::unique_ptr<grpc::Server> server;
};

ReconnectingChannel::Make To(const std::string& target) {
  return [target] { return grpc::CreateChannel(target, grpc::InsecureChannelCredentials()); };
}

// Dials as a session does, until it is connected.
bool ConnectsWithin(ReconnectingChannel& channel, std::chrono::seconds timeout) {
  for (const auto give_up = steady_clock::now() + timeout; steady_clock::now() < give_up;) {
    if (channel.ChannelForDial()->WaitForConnected(std::chrono::system_clock::now() + milliseconds(50))) return true;
  }
  return false;
}

// One channel would have asked the eleventh time after more than a minute.
TEST(ReconnectingChannelTest, ANameThatComesLateIsFoundAtOnce) {
  const Server server;
  testing::NameServer names(/*refusals=*/10);
  ReconnectingChannel channel(To(names.Target(server.port)), milliseconds(20));
  EXPECT_TRUE(ConnectsWithin(channel, std::chrono::seconds(30)));
  EXPECT_GT(names.asked(), 10);
}

TEST(ReconnectingChannelTest, AChannelThatIsConnectedIsKept) {
  const Server server;
  testing::NameServer names(/*refusals=*/0);
  ReconnectingChannel channel(To(names.Target(server.port)), milliseconds(0));
  ASSERT_TRUE(ConnectsWithin(channel, std::chrono::seconds(30)));
  const auto first = channel.ChannelForDial();
  EXPECT_EQ(channel.ChannelForDial(), first);
}

TEST(ReconnectingChannelTest, AChannelThatHasFailedIsKeptForAWhile) {
  testing::NameServer names(/*refusals=*/1'000'000);
  ReconnectingChannel patient(To(names.Target(1)), std::chrono::hours(1)), hasty(To(names.Target(1)), milliseconds(0));
  for (ReconnectingChannel* const channel : {&patient, &hasty}) {
    const auto first = channel->ChannelForDial();
    while (first->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
      first->WaitForStateChange(first->GetState(false), std::chrono::system_clock::now() + milliseconds(50));
    }
    EXPECT_EQ(channel->ChannelForDial() == first, channel == &patient);
  }
}

}  // namespace
}  // namespace fusionllm::transport
