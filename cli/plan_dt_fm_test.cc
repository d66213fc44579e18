// `fusionctl plan --objective dt-fm`: allocating pipelines on a network without a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DtFmObjective : public ::testing::Test, protected Fusionctl {
 protected:
  using Fusionctl::Run;  // not the one of gtest
};

TEST_F(DtFmObjective, NeedsANetworkAndNoJob) {
  // Two machines of two devices: the fast links serve the pipelines, where more is sent.
  Write("network.json", R"({"name": "two machines", "n": 4,
    "delay_ms": [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]],
    "bandwidth_gbps": [[0, 100, 1, 1], [100, 0, 1, 1], [1, 1, 0, 100], [1, 1, 100, 0]]})");
  const std::string problem = "--format json plan --objective dt-fm --network network.json --d-pp 2 --d-dp 2 --grad-gib 0.1 --act-gib 2 ";
  json plans;
  for (const std::string strategy : {"op-fence", "dt-fm", "random"}) {
    const Outcome outcome = Run(problem + "--seed 3 --strategy " + strategy + " | tee plan.json");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    plans[strategy] = json::parse(outcome.out);
    const json scored = json::parse(Run(problem + "--score plan.json").out);
    EXPECT_EQ(scored["total_s"], plans[strategy]["total_s"]) << strategy;
    EXPECT_EQ(scored["grid"], plans[strategy]["grid"]) << strategy;
  }
  // 2 (1 ms + 0.05 GiB at 1 Gbit/s) between replicas, 2 (2 GiB at 100 Gbit/s) along the pipelines.
  EXPECT_NEAR(plans["op-fence"]["total_s"].get<double>(), 2 * (0.001 + 0.05 * 8) + 2 * (2 * 8.0 / 100), 1e-9);
  EXPECT_GE(plans["random"]["total_s"], plans["op-fence"]["total_s"]);
  EXPECT_EQ(Run("plan --objective dt-fm").code, 2);
  const Outcome wrong = Run("plan --objective dt-fm --network network.json --d-pp 3 --d-dp 2");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("network.json"), HasSubstr("3 stages of 2 pipelines")));
  EXPECT_EQ(Run(problem + "--strategy exact").code, 2);
}

TEST_F(DtFmObjective, RefusesWhatIsNoNetworkAndNoGrid) {
  const auto network = [](const std::string& delays, const std::string& rates, const std::string& n = "4") {
    return R"({"n": )" + n + R"(, "delay_ms": )" + delays + R"(, "bandwidth_gbps": )" + rates + "}";
  };
  const std::string delays = "[[0,1,2,3],[1,0,1,2],[2,1,0,1],[3,2,1,0]]", rates = "[[0,1,1,1],[1,0,1,1],[1,1,0,1],[1,1,1,0]]";
  const auto with = [](std::string matrix, const std::string& from, const std::string& to) {
    return matrix.replace(matrix.find(from), from.size(), to);
  };
  Write("good.json", network(delays, rates));
  const std::string shape = "--d-pp 2 --d-dp 2 --grad-gib 0.5 --act-gib 0.25 ";
  struct Case {
    std::string network, arguments, grid, said;  // an empty network: the good one; an empty grid: a search
  };
  const std::vector<Case> cases = {
      {network(with(delays, ",[3,2,1,0]", ""), rates), shape, "", "delay_ms has 3 rows, n is 4"},
      {network(with(delays, "[1,0,1,2]", "[1,0,1]"), rates), shape, "", "delay_ms[1] has 3 entries"},
      {network(delays, with(rates, ",[1,1,1,0]", "")), shape, "", "bandwidth_gbps has 3 rows"},
      {network(delays, with(rates, "[1,0,1,1]", "[1,0,1,1,1]")), shape, "", "bandwidth_gbps[1] has 5 entries"},
      {network(with(delays, "[0,1,2,3]", "[0,-1,2,3]"), rates), shape, "", "delay_ms[0][1] must be a non-negative number, got -1"},
      {network(delays, with(rates, "[0,1,1,1]", "[0,1,-2,1]")), shape, "", "bandwidth_gbps[0][2] must be a positive number, got -2"},
      {network(delays, with(rates, "[0,1,1,1]", "[0,0,1,1]")), shape, "", "bandwidth_gbps[0][1] must be a positive number, got 0"},
      {network(with(delays, "[0,1,2,3]", "[0,NaN,2,3]"), rates), shape, "", "bad.json"},
      {network(with(delays, "[0,1,2,3]", "[0,null,2,3]"), rates), shape, "", "delay_ms[0][1] is not a number"},
      {network(with(delays, "[0,1,2,3]", "[0,1e999,2,3]"), rates), shape, "", "bad.json"},
      {network(delays, "7"), shape, "", "bandwidth_gbps must be a list"},
      {network(delays, rates, "1000000000"), shape, "", "n "},
      {network(delays, rates, "0"), shape, "", "n "},
      {R"({"delay_ms": [[0]], "bandwidth_gbps": [[0]]})", shape, "", "network.n"},
      {R"({"n": 1, "bandwidth_gbps": [[0]]})", shape, "", "network.delay_ms: is missing"},
      {R"({"n": 1, "delay_ms": [[0]]})", shape, "", "network.bandwidth_gbps: is missing"},
      {"[1, 2]", shape, "", "network"},
      {"{", shape, "", "bad.json"},
      {"", "--d-pp 2 --d-dp 3 --grad-gib 1 --act-gib 1", "", "2 stages of 3 pipelines do not make the network's 4 devices"},
      {"", "--d-pp -2 --d-dp -2 --grad-gib 1 --act-gib 1", "", "do not make the network's 4 devices"},
      {"", "--d-pp 2 --d-dp 2 --grad-gib -1 --act-gib 1", "", "gradients must be a non-negative number, got -1"},
      {"", "--d-pp 2 --d-dp 2 --grad-gib 1 --act-gib nan", "", "activations must be a non-negative number, got nan"},
      {"", "--d-pp 2 --d-dp 2 --grad-gib 1e307 --act-gib 1", "", "--grad-gib: the GiB of gradients must be at most 1e+09, got 1e+307"},
      {"", "--d-pp 2 --d-dp 2 --grad-gib 1 --act-gib 1e307", "[[0, 1], [2, 3]]", "--act-gib: the GiB of activations must be at most 1e+09"},
      {network(with(delays, "[0,1,2,3]", "[0,1e308,2,3]"), rates), shape, "", "bad.json: delay_ms[0][1]: with 1e+308 a transfer between"},
      {network(with(delays, "[1,0,1,2]", "[1e308,0,1,2]"), rates), shape, "", "bad.json: delay_ms[1][0]: with 1e+308 a transfer between"},
      {network(delays, "[[0,1e-308,1,1],[1e-308,0,1,1],[1,1,0,1],[1,1,1,0]]"), shape, "", "bad.json: bandwidth_gbps[0][1]: with 1e-308"},
      {network(delays, "[[0,1e-308,1,1],[1e-308,0,1,1],[1,1,0,1],[1,1,1,0]]"), shape + "--strategy dt-fm", "", "bandwidth_gbps[0][1]"},
      {network(delays, "[[0,1e-308,1,1],[1e-308,0,1,1],[1,1,0,1],[1,1,1,0]]"), shape, "[[0, 1], [2, 3]]", "bandwidth_gbps[0][1]"},
      {"", shape, "[[0, 1], [2, 2]]", "device 2 is in the grid twice"},
      {"", shape, "[[0, 1], [2, 4]]", "names device 4; there are 0 to 3"},
      {"", shape, "[[0, 1], [2, -1]]", "names device -1"},
      {"", shape, "[[0, 1], [2, 4294967299]]", "grid[1][1] is not a whole number"},
      {"", shape, "[[0, 1], [2, 2.5]]", "grid[1][1] is not a whole number"},
      {"", shape, "[[0, 1, 2, 3]]", "1 rows for 2 stages"},
      {"", shape, "[[0, 1, 2], [3]]", "row 0 of the grid has 3 devices for 2 pipelines"},
      {"", shape, R"({"other": 1})", "grid"},
      {"", shape + "--strategy exact", "", "--strategy exact does not plan for --objective dt-fm"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.network + " " + c.arguments + " " + c.grid);
    Write("bad.json", c.network);
    Write("grid.json", c.grid);
    const Outcome outcome = Run("--format json plan --objective dt-fm --network " + std::string(c.network.empty() ? "good" : "bad") +
                                ".json " + c.arguments + (c.grid.empty() ? "" : " --score grid.json"));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(c.said));
  }
}

TEST_F(DtFmObjective, AScoredGridCostsWhatThePaperSays) {
  // Both directions count with their mean; diagonals, even absurd ones, and unknown keys do not count.
  Write("network.json", R"({"n": 4, "source": "a test", "regions": null,
    "delay_ms": [[-7, 10, 20, 30], [30, null, 40, 50], [20, 40, 0, 60], [30, 50, 60, 0]],
    "bandwidth_gbps": [[0, 1, 2, 4], [3, 0, 8, 1], [2, 8, 0, 2], [4, 1, 2, 0]]})");
  Write("grid.json", "[[3, 0], [1, 2]]");
  const Outcome outcome =
      Run("--format json plan --objective dt-fm --network network.json --d-pp 2 --d-dp 2 --grad-gib 0.5 --act-gib 0.25 --score grid.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  std::set<std::string> keys;
  for (const auto& [key, value] : plan.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"dp_cost_s", "evaluations", "grid", "pp_cost_s", "search_cpu_seconds", "total_s"}));
  EXPECT_EQ(plan["grid"], json::parse("[[3, 0], [1, 2]]"));
  // 2 (delay + GiB / pipelines * 8 / Gbit/s): stage 0 is 3-0 at 30 ms and 4 Gbit/s, stage 1 is 1-2 at 40 ms and 8 Gbit/s.
  EXPECT_NEAR(plan["dp_cost_s"].get<double>(), 2 * std::max(0.030 + 0.25 * 8 / 4, 0.040 + 0.25 * 8 / 8), 1e-12);
  // Pipelines 3-1 at 50 ms and 1 Gbit/s, and 0-2 at 20 ms and 2 Gbit/s.
  EXPECT_NEAR(plan["pp_cost_s"].get<double>(), 2 * std::max(0.050 + 0.25 * 8 / 1, 0.020 + 0.25 * 8 / 2), 1e-12);
  EXPECT_NEAR(plan["total_s"].get<double>(), plan["dp_cost_s"].get<double>() + plan["pp_cost_s"].get<double>(), 1e-12);
  EXPECT_GE(plan["search_cpu_seconds"].get<double>(), 0);
  EXPECT_EQ(plan["evaluations"], 1);
}

}  // namespace
}  // namespace fusionllm::cli
