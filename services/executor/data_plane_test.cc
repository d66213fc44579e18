#include "services/executor/data_plane.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "services/grpc_server.h"

namespace fusionllm::services {
namespace {

TEST(DataPlaneTest, AnswersHealthChecks) {
  const auto credentials = LoadCredentials("", "a");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  auto data_plane = DataPlane::Create({.name = "a", .incarnation = 1}, *credentials);
  ASSERT_TRUE(data_plane.ok()) << data_plane.status();
  const auto channel = grpc::CreateChannel((*data_plane)->address(), grpc::InsecureChannelCredentials());
  const absl::Status health = CheckHealth(*channel, absl::Seconds(60));
  EXPECT_TRUE(health.ok()) << health;
  (*data_plane)->Close();
  EXPECT_FALSE(CheckHealth(*channel, absl::Seconds(60)).ok());
}

}  // namespace
}  // namespace fusionllm::services
