#include "lib/wire/grid_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace fusionllm::wire {
namespace {

using ::testing::HasSubstr;

constexpr char kNetwork[] =
    R"({"name": "pair", "n": 2, "symmetric": true, "regions": null, "delay_ms": [[0, 10], [10, 0]], "bandwidth_gbps": [[0, 1.5], [1, 0]]})";

TEST(GridJson, ReadsANetworkAndIgnoresWhatItDoesNotKnow) {
  const auto network = ParseNetwork(kNetwork);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->name, "pair");
  EXPECT_EQ(network->delay_ms[0][1], 10);
  EXPECT_EQ(network->bandwidth_gbps[0][1], 1.5);
}

TEST(GridJson, NamesTheFieldThatIsWrong) {
  const auto words = [](const std::string& from, const std::string& to) {
    std::string text = kNetwork;
    text.replace(text.find(from), from.size(), to);
    return std::string(ParseNetwork(text).status().message());
  };
  EXPECT_THAT(words("\"n\": 2", "\"n\": 3"), HasSubstr("delay_ms has 2 rows, n is 3"));
  EXPECT_THAT(words("\"n\": 2", "\"n\": 1000000000"), HasSubstr("network.n"));
  EXPECT_THAT(words("delay_ms", "delay"), HasSubstr("network.delay_ms"));
  EXPECT_THAT(words("1.5", "\"fast\""), HasSubstr("network.bandwidth_gbps[0][1]"));
  EXPECT_THAT(words("[0, 10]", "7"), HasSubstr("network.delay_ms[0]"));
  EXPECT_THAT(words("]]}", ""), HasSubstr("network"));
}

TEST(GridJson, AnAnswerReadsBackAsAGrid) {
  const scheduler::grid::GridPlan plan{.grid = {{0, 3}, {2, 1}}, .cost = {.data_parallel_s = 1, .pipeline_s = 0.5}, .evaluations = 7};
  const std::string text = PrintGridPlan(plan, 0.25);
  EXPECT_EQ(*ParseGrid(text), plan.grid);
  EXPECT_EQ(*ParseGrid("[[0, 3], [2, 1]]"), plan.grid);
  const nlohmann::json document = nlohmann::json::parse(text);
  EXPECT_EQ(document["total_s"], 1.5);
  EXPECT_EQ(document["dp_cost_s"], 1);
  EXPECT_EQ(document["pp_cost_s"], 0.5);
  EXPECT_EQ(document["search_cpu_seconds"], 0.25);
  EXPECT_EQ(document["evaluations"], 7);
  EXPECT_THAT(std::string(ParseGrid("[[0, 4294967296]]").status().message()), HasSubstr("grid[0][1]"));
  EXPECT_THAT(std::string(ParseGrid("[[0, 1.5]]").status().message()), HasSubstr("grid[0][1]"));
  EXPECT_THAT(std::string(ParseGrid("{}").status().message()), HasSubstr("grid"));
}

}  // namespace
}  // namespace fusionllm::wire
