// `fusionctl run --listen` and `fusionctl join` as users of several machines call them, each beside the test.
//
// The other machines are this one; those that Hidden() starts see neither the run's folder nor the job and its data.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/run/child_process.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {

inline constexpr char kEveryTen[] = "spec.checkpoint={path: checkpoints, everySteps: 10}";

// A fusionctl that runs beside the test. All waiting is for a condition, with a limit.
class Fusionctl {
 public:
  // `wrapper`: a command that fusionctl and its arguments are given to.
  Fusionctl(const base::TempFolder& folder, const std::string& name, std::vector<std::string> arguments,
            const std::vector<std::string>& wrapper = {});

  // Until it has ended: its exit code, or -1.
  int Wait();
  // Until stderr holds `text`; false when it ends or time runs out before.
  bool WaitForWords(const std::string& text);
  // Until it has printed such a line.
  bool WaitForLine(const std::function<bool(const nlohmann::json&)>& wanted);
  bool WaitForEvent(const std::string& reason);
  bool WaitForStep(int64_t step);
  void Interrupt();
  void Kill();

  std::string words() const;  // stderr
  const std::vector<nlohmann::json>& lines() const { return lines_; }
  nlohmann::json Event(const std::string& reason) const;  // the first, null: none
  // Of every step line, replayed ones included, in their order.
  std::vector<std::pair<int64_t, std::string>> LossBits() const;

 private:
  void WaitUntil(const std::function<bool()>& condition);

  const std::string stderr_;
  std::optional<ChildProcess> child_;
  LineReader reader_;
  bool open_ = true;
  std::vector<nlohmann::json> lines_;
};

class JoinTest : public ::testing::Test {
 protected:
  JoinTest();
  ~JoinTest() override;

  using Settings = std::vector<std::string>;
  // A run that waits for others, itself included `executors`; `address_` and `token_` are then known. Outputs lie in mine/NAME-out.
  std::unique_ptr<Fusionctl> Listen(int executors, const Settings& settings = {}, const std::string& name = "run",
                                    const std::string& listen = "127.0.0.1:0");
  // A run without others.
  std::unique_ptr<Fusionctl> Alone(const Settings& settings = {}, const std::string& name = "alone");
  std::unique_ptr<Fusionctl> Join(const std::string& log, const std::vector<std::string>& more, std::string token = "");
  // Join by a machine that has none of the files. Skip tests where CannotHide() says why.
  std::unique_ptr<Fusionctl> Hidden(const std::string& name, const std::vector<std::string>& more = {});
  static std::string CannotHide();
  // Every step line, replayed ones included, has the bits of `expected`, and all steps from `first` to `last` are there.
  static void ExpectSameLosses(const Fusionctl& run, const Fusionctl& expected, int64_t first, int64_t last);

  std::string Out(const std::string& name) const { return folder_ / ("mine/" + name + "-out"); }
  std::vector<std::string> CredentialFolders() const;

  base::TempFolder folder_;
  std::string job_, address_, token_;
};

}  // namespace fusionllm::cli
