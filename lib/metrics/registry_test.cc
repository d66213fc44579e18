#include "lib/metrics/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace fusionllm::metrics {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RegistryTest, SaysWhichBuildItIs) {
  Registry registry("fusion-probe", "1.2.3");
  EXPECT_THAT(registry.Text(), HasSubstr("# TYPE fusionllm_build_info gauge\n"
                                         "fusionllm_build_info{program=\"fusion-probe\",version=\"1.2.3\"} 1\n"));
}

TEST(RegistryTest, ASeriesAppearsWithItsFirstValue) {
  Registry registry("p", "1");
  const Gauge loss = registry.AddGauge({"loss", "Of the last step."});
  EXPECT_THAT(registry.Text(), Not(HasSubstr("fusionllm_loss")));
  loss.Set(2.5);
  EXPECT_THAT(registry.Text(), HasSubstr("# HELP fusionllm_loss Of the last step.\n# TYPE fusionllm_loss gauge\nfusionllm_loss 2.5\n"));
  loss.Set(1.5);
  loss.Add(-0.25);
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_loss 1.25\n"));
}

TEST(RegistryTest, ClearedSeriesAreGoneAndMayComeBack) {
  Registry registry("p", "1");
  const Gauge busy = registry.AddGauge({"busy", "Busy.", {"stage"}});
  busy.Set(0.5, {"0"});
  busy.Set(0.75, {"1"});
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_busy{stage=\"1\"} 0.75\n"));
  busy.Clear();
  busy.Set(1, {"0"});
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_busy{stage=\"0\"} 1\n"));
  EXPECT_THAT(registry.Text(), Not(HasSubstr("stage=\"1\"")));
}

TEST(RegistryTest, OneSeriesCanBeRemoved) {
  Registry registry("p", "1");
  const Gauge objects = registry.AddGauge({"objects", "Objects.", {"cluster"}});
  objects.Set(1, {"a"});
  objects.Set(2, {"b"});
  objects.Remove({"a"});
  objects.Remove({"never there"});
  EXPECT_THAT(registry.Text(), Not(HasSubstr("cluster=\"a\"")));
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_objects{cluster=\"b\"} 2\n"));
  const Counter calls = registry.AddCounter({"calls_total", "Calls.", {"host"}});
  calls.Add(1, {"c"});
  calls.Add(2, {"d"});
  calls.Remove({"c"});
  EXPECT_THAT(registry.Text(), Not(HasSubstr("host=\"c\"")));
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_calls_total{host=\"d\"} 2\n"));
}

TEST(RegistryTest, NamesOfOthersVocabulariesKeepTheirPrefix) {
  Registry registry("p", "1");
  registry.AddGauge({.name = "depth", .help = "Depth.", .labels = {"name"}, .prefix = "workqueue_"}).Set(3, {"jobs"});
  EXPECT_THAT(registry.Text(), HasSubstr("\nworkqueue_depth{name=\"jobs\"} 3\n"));
}

TEST(RegistryTest, CountersOnlyRise) {
  Registry registry("p", "1");
  const Counter bytes = registry.AddCounter({"bytes_total", "Bytes.", {"src", "dst"}});
  bytes.Add(3, {"a", "b"});
  bytes.Add(4, {"a", "b"});
  bytes.IncreaseTo(5, {"a", "b"});
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_bytes_total{dst=\"b\",src=\"a\"} 7\n"));
  bytes.IncreaseTo(12, {"a", "b"});
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_bytes_total{dst=\"b\",src=\"a\"} 12\n"));
}

TEST(RegistryTest, HistogramsCountByBucket) {
  EXPECT_THAT(ExponentialBuckets(0.5, 2, 3), ElementsAre(0.5, 1, 2));
  Registry registry("p", "1");
  const Histogram step = registry.AddHistogram({"step_seconds", "Steps."}, ExponentialBuckets(0.5, 2, 3));
  step.InitializeToZero();
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_step_seconds_count 0\n"));
  for (const double seconds : {0.25, 0.75, 0.8, 5.0}) step.Observe(seconds);
  const std::string text = registry.Text();
  for (const char* line : {"fusionllm_step_seconds_count 4\n", "fusionllm_step_seconds_sum 6.8", "{le=\"0.5\"} 1\n", "{le=\"1\"} 3\n",
                           "{le=\"2\"} 3\n", "{le=\"+Inf\"} 4\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(RegistryTest, AgesAreWorkedOutWhenAsked) {
  Registry registry("p", "1");
  const Gauge age = registry.AddGauge({"age_seconds", "Age."});
  int asked = 0;
  registry.OnCollect([&] { age.Set(++asked); });
  (void)registry.Text();
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_age_seconds 2\n"));
}

TEST(RegistryTest, LabelValuesAreEscaped) {
  Registry registry("p", "1");
  registry.AddGauge({"g", "G.", {"name"}}).Set(1, {"a\"b\\c\nd"});
  registry.AddCallbackGauge({"read", "R.", {"name"}}, [](const Registry::Emit& emit) { emit(1, {"a\"b\\c\nd"}); });
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("fusionllm_g{name=\"a\\\"b\\\\c\\nd\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fusionllm_read{name=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST(RegistryTest, AReadGaugeTellsWhatThereIsEachTime) {
  Registry registry("p", "1");
  std::map<std::string, double> jobs;
  registry.AddCallbackGauge({"size", "Sizes.", {"ns", "job"}}, [&](const Registry::Emit& emit) {
    for (const auto& [job, size] : jobs) emit(size, {"ml", job});
  });
  registry.AddCallbackGauge({"jobs", "Jobs."}, [&](const Registry::Emit& emit) { emit(static_cast<double>(jobs.size()), {}); });
  EXPECT_THAT(registry.Text(), AllOf(Not(HasSubstr("fusionllm_size")), HasSubstr("# TYPE fusionllm_jobs gauge\nfusionllm_jobs 0\n")));
  jobs = {{"a", 1.5}, {"b", 30}};
  EXPECT_THAT(registry.Text(), HasSubstr("# HELP fusionllm_size Sizes.\n# TYPE fusionllm_size gauge\n"
                                         "fusionllm_size{job=\"a\",ns=\"ml\"} 1.5\nfusionllm_size{job=\"b\",ns=\"ml\"} 30\n"));
  jobs.erase("a");
  EXPECT_THAT(registry.Text(), AllOf(Not(HasSubstr("job=\"a\"")), HasSubstr("fusionllm_jobs 1\n")));
  EXPECT_THAT(registry.Families(), ::testing::Contains(FamilyInfo{"fusionllm_size", Kind::kGauge, {"ns", "job"}, "Sizes."}));
}

TEST(RegistryTest, FamiliesAreListedByName) {
  Registry registry("p", "1");
  registry.AddCounter({"z_total", "Z.", {"x"}});
  registry.AddGauge({"a", "A."});
  EXPECT_THAT(registry.Families(), ElementsAre(FamilyInfo{"fusionllm_a", Kind::kGauge, {}, "A."},
                                               FamilyInfo{"fusionllm_build_info",
                                                          Kind::kGauge,
                                                          {"program", "version"},
                                                          "Always 1; the labels say which program of which version this is."},
                                               FamilyInfo{"fusionllm_z_total", Kind::kCounter, {"x"}, "Z."}));
}

TEST(RegistryTest, SeriesAreBounded) {
  Registry registry("p", "1");
  const Gauge gauge = registry.AddGauge({"g", "G.", {"x"}});
  for (size_t i = 0; i < kMaxSeries + 10; ++i) gauge.Set(1, {std::to_string(i)});
  registry.AddCallbackGauge({"read", "R.", {"x"}}, [](const Registry::Emit& emit) {
    for (size_t i = 0; i < kMaxSeries + 10; ++i) emit(1, {std::to_string(i)});
  });
  const std::string text = registry.Text();
  for (const std::string family : {"fusionllm_g{", "fusionllm_read{"}) {
    size_t lines = 0;
    for (size_t at = text.find(family); at != std::string::npos; at = text.find(family, at + 1)) ++lines;
    EXPECT_EQ(lines, kMaxSeries) << family;
  }
}

TEST(RegistryTest, ThreadsMayFeedAndScrapeAtTheSameTime) {
  Registry registry("p", "1");
  const Counter counter = registry.AddCounter({"c_total", "C.", {"x"}});
  const Gauge gauge = registry.AddGauge({"g", "G.", {"x"}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        counter.Add(1, {std::to_string(i % 3)});
        gauge.Set(i, {std::to_string(t)});
        if (i % 50 == 0) gauge.Clear();
        if (i % 100 == 0) {
          EXPECT_FALSE(registry.Text().empty());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  counter.Add(0, {"0"});
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_c_total{x=\"0\"} 668\n"));
}

TEST(RegistryDeathTest, MistakesInTheCodeEndTheProgram) {
  Registry registry("p", "1");
  const Gauge gauge = registry.AddGauge({"g", "G.", {"x"}});
  EXPECT_DEATH(gauge.Set(1), "fusionllm_g: a value for each label");
  EXPECT_DEATH(registry.AddCounter({"g", "Again."}), "fusionllm_g: declared twice");
  registry.AddCallbackGauge({"read", "R.", {"x"}}, [](const Registry::Emit& emit) { emit(1, {}); });
  EXPECT_DEATH(registry.Text(), "fusionllm_read: a value for each label");
}

}  // namespace
}  // namespace fusionllm::metrics
