// The proxy client against proxies that answer, die, come back, dawdle and babble.
#include "engine/run/proxy_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/errors.h"
#include "proxy/fake_proxy.h"

namespace andrea {
namespace {

using testing::FakeProxy;
using testing::SocketDirectory;
using Json = nlohmann::json;

std::string phase_line(std::int64_t step, double weight, int sources = 2) {
  Json weights = Json::array();
  for (int k = 0; k < sources; ++k) weights.push_back(k == 0 ? weight : 1.0 - weight);
  return Json{{"type", "phase"},
              {"step", step},
              {"steps", 7},
              {"weights", weights},
              {"log", "{\"kind\":\"phase\"}"},
              {"state", "{\"at\":" + std::to_string(step) +
                            ",\"pending\":{\"step\":[],\"source\":[],\"documents\":[],\"loss\":[]}}"}}
             .dump() +
         "\n";
}

/// Answers every question about a phase, the weight telling the step.
std::optional<std::string> good(const std::string& line) {
  const std::int64_t step = Json::parse(line)["step"].get<std::int64_t>();
  return phase_line(step, 1.0 / (3.0 + static_cast<double>(step)));
}

struct Said {
  std::vector<std::string> lines;
  bool has(const std::string& part) const {
    for (const std::string& line : lines)
      if (line.find(part) != std::string::npos) return true;
    return false;
  }
};

ProxyOptions options_for(const SocketDirectory& directory, Said* said, double timeout = 0.5) {
  ProxyOptions options;
  options.address = directory.address();
  options.timeout_seconds = timeout;
  options.stop_patience_seconds = 0.1;
  options.say = [said](std::int64_t, const std::string& message) { said->lines.push_back(message); };
  return options;
}

/// The first phase, however slow this machine is: without weights a time-out is an error, and it asks again.
Phase first_phase(ProxyClient* client) {
  for (int tries = 0;; ++tries) {
    try {
      return client->begin_phase(0, {});
    } catch (const ConfigError&) {
      if (tries == 100) throw;
    }
  }
}

Experiment experiment() {
  Experiment e;
  e.name = "test \"model\"";
  e.train.seed = 4000000000U;
  return e;
}

std::vector<SourceInfo> two_sources() { return {{"chat", 10, 1000, 4000}, {"g\u00fct\n", 5, 500, 2000}}; }

std::vector<Row> rows(std::int64_t step) { return {{step, 0, 1, 2, 4.521F}, {step, 1, 0, 0, 0.1F}}; }

double seconds_of(const std::function<void()>& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

TEST(ProxyAddressTest, TakesUnixAndLoopback) {
  EXPECT_EQ(parse_proxy_address("unix:/tmp/x").path, "/tmp/x");
  EXPECT_EQ(parse_proxy_address("tcp:127.0.0.1:80").port, 80);
  EXPECT_EQ(parse_proxy_address("tcp:localhost:80").host, "127.0.0.1");
  EXPECT_EQ(parse_proxy_address("tcp:[::1]:65535").host, "::1");
  for (const char* wrong :
       {"", "x", "unix:", "tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:", "tcp:127.0.0.1:0", "tcp:127.0.0.1:65536",
        "tcp:127.0.0.1:8x", "tcp:10.0.0.1:80", "tcp:example.org:80", "http://127.0.0.1:80"})
    EXPECT_THROW(parse_proxy_address(wrong), ConfigError) << wrong;
  EXPECT_THROW(parse_proxy_address("unix:" + std::string(108, 'x')), ConfigError);
}

TEST(ProxyClientTest, SaysHelloThenSendsRows) {
  const SocketDirectory directory;
  FakeProxy proxy(directory.socket(), good);
  Said said;
  ProxyClient client(options_for(directory, &said, 60.0), experiment(), two_sources());
  EXPECT_EQ(client.state(), "null");
  const Phase first = client.begin_phase(0, {});
  EXPECT_EQ(first.steps, 7);
  EXPECT_EQ(first.weights, (std::vector<double>{1.0 / 3.0, 1.0 - 1.0 / 3.0}));  // every bit of the double
  EXPECT_EQ(first.log, "{\"kind\":\"phase\"}");
  const Phase second = client.begin_phase(7, rows(5));
  EXPECT_EQ(second.weights[0], 1.0 / 10.0);
  EXPECT_EQ(Json::parse(client.state())["at"], 7);
  EXPECT_EQ(client.not_reproducible_from(), -1);
  EXPECT_TRUE(said.lines.empty());

  const std::vector<std::string> lines = proxy.lines();
  ASSERT_EQ(lines.size(), 2U);
  const Json hello = Json::parse(lines[0]);
  EXPECT_EQ(hello["type"], "hello");
  EXPECT_EQ(hello["protocol"], 1);
  EXPECT_EQ(hello["model"], "test \"model\"");
  EXPECT_EQ(hello["seed"], 4000000000U);
  EXPECT_TRUE(hello["state"].is_null());
  EXPECT_EQ(hello["sources"][1]["name"], "g\u00fct\n");
  EXPECT_EQ(hello["sources"][0]["bytes"], 4000);
  EXPECT_NE(lines[1].find("\"loss\":[4.521,0.1]"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("\"source\":[1,0]"), std::string::npos) << lines[1];
}

TEST(ProxyClientTest, ADeadProxyLeavesTheLastWeightsAndItsReturnIsTold) {
  const SocketDirectory directory;
  Said said;
  ProxyClient client(options_for(directory, &said), experiment(), two_sources());
  Phase before;
  {
    FakeProxy proxy(directory.socket(), good);
    before = first_phase(&client);
  }
  const Phase without = client.begin_phase(7, rows(5));
  EXPECT_EQ(without.weights, before.weights);
  EXPECT_GE(without.steps, 1);
  EXPECT_EQ(client.not_reproducible_from(), 7);
  EXPECT_TRUE(said.has("not reproducible from step 7"));
  EXPECT_TRUE(Json::accept(without.log));

  FakeProxy again(directory.socket(), good);
  Phase back = client.begin_phase(14, rows(12));
  for (int tries = 0; back.weights == before.weights && tries < 200; ++tries) {  // it rests in between
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    back = client.begin_phase(14, {});
  }
  EXPECT_EQ(back.weights[0], 1.0 / 17.0);
  EXPECT_TRUE(said.has("answers again"));
  EXPECT_EQ(client.not_reproducible_from(), 7);  // the mark stays
  const Json hello = Json::parse(again.lines().at(0));
  EXPECT_EQ(Json::parse(hello["state"].get<std::string>())["at"], 0);
  EXPECT_EQ(hello["rows"]["step"], (std::vector<int>{5, 5, 12, 12}));  // nothing was lost
}

TEST(ProxyClientTest, AProxyStartedAgainInTimeChangesNothing) {
  const SocketDirectory directory;
  Said said;
  ProxyClient client(options_for(directory, &said, 20.0), experiment(), two_sources());
  {
    FakeProxy proxy(directory.socket(), good);
    first_phase(&client);
  }
  std::optional<FakeProxy> late;
  std::thread restart([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    late.emplace(directory.socket(), good);
  });
  const Phase phase = client.begin_phase(7, rows(5));
  restart.join();
  EXPECT_EQ(phase.weights[0], 1.0 / 10.0);
  EXPECT_EQ(client.not_reproducible_from(), -1);
  const Json hello = Json::parse(late->lines().at(0));
  EXPECT_EQ(hello["step"], 7);
  EXPECT_EQ(hello["rows"]["step"].size(), 2U);
}

TEST(ProxyClientTest, ASlowProxyIsWaitedForOnlySoLong) {
  const SocketDirectory directory;
  Said said;
  std::atomic<bool> silent{false};
  FakeProxy proxy(directory.socket(),
                  [&](const std::string& line) { return silent ? std::nullopt : good(line); });
  ProxyClient client(options_for(directory, &said), experiment(), two_sources());
  const Phase first = first_phase(&client);
  silent = true;
  Phase second;
  const double spent = seconds_of([&] { second = client.begin_phase(7, {}); });
  EXPECT_EQ(second.weights, first.weights);
  EXPECT_GT(spent, 0.4);
  EXPECT_LT(spent, 20.0);  // it is not waited for without an end; the machine may be busy
  // While it is lost and silent, one more edge waits, and those after it do not ask at all.
  client.begin_phase(14, {});
  EXPECT_EQ(client.begin_phase(21, {}).weights, first.weights);
  for (const std::string& line : proxy.lines()) EXPECT_NE(Json::parse(line)["step"], 21) << line;
}

TEST(ProxyClientTest, NonsenseDoesNotEndTheRun) {
  const std::string ok = phase_line(7, 0.5);
  Json bad = Json::parse(ok);
  std::vector<std::string> replies{"",
                                   "\n",
                                   "garbage\n",
                                   "[]\n",
                                   "{}\n",
                                   "{\"type\":3}\n",
                                   "{\"type\":\"x\"}\n",
                                   "\xff\xfe\n",
                                   std::string(5, '\0') + "\n",
                                   phase_line(8, 0.5),
                                   phase_line(7, 0.5, 3),
                                   phase_line(7, -0.5),
                                   "{\"type\":\"phase\",\"step\":7",
                                   std::string(200000, '[') + "\n",
                                   std::string((17U << 20), 'x')};
  for (const char* key : {"step", "steps", "weights", "log", "state"}) {
    Json missing = bad;
    missing.erase(key);
    replies.push_back(missing.dump() + "\n");
    Json other = bad;
    other[key] = true;
    replies.push_back(other.dump() + "\n");
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"steps", 0},
                                                                            {"steps", -7},
                                                                            {"steps", 1e18},
                                                                            {"weights", {0.0, 0.0}},
                                                                            {"weights", {"a", 1.0}},
                                                                            {"weights", {1e308, 1e308}},
                                                                            {"log", "{\"a\":\n1}"},
                                                                            {"log", "no json"},
                                                                            {"state", "{"}}) {
    Json other = bad;
    other[key] = value;
    replies.push_back(other.dump() + "\n");
  }
  for (const std::string& reply : replies) {
    const SocketDirectory directory;
    Said said;
    FakeProxy proxy(directory.socket(), [&](const std::string& line) -> std::optional<std::string> {
      return Json::parse(line)["step"] == 0 ? good(line) : std::optional<std::string>(reply);
    });
    ProxyClient client(options_for(directory, &said, 0.15), experiment(), two_sources());
    const Phase first = first_phase(&client);
    const std::string state = client.state();
    const Phase second = client.begin_phase(7, {});
    EXPECT_EQ(second.weights, first.weights) << reply.substr(0, 200);
    EXPECT_EQ(client.not_reproducible_from(), 7);
    EXPECT_EQ(client.state(), state);
  }
}

TEST(ProxyClientTest, WithoutWeightsThereIsNoRun) {
  const SocketDirectory directory;
  Said said;
  ProxyClient alone(options_for(directory, &said, 0.3), experiment(), two_sources());
  EXPECT_THROW(alone.begin_phase(0, {}), ConfigError);

  const auto refuse = [](const std::string&) {
    return std::optional<std::string>("{\"type\":\"error\",\"code\":\"sources\",\"message\":\"others\"}\n");
  };
  FakeProxy proxy(directory.socket(), refuse);
  ProxyClient refused(options_for(directory, &said, 30.0), experiment(), two_sources());
  EXPECT_LT(seconds_of([&] { EXPECT_THROW(refused.begin_phase(0, {}), ConfigError); }), 20.0);
}

TEST(ProxyClientTest, ASignalShortensTheWait) {
  const SocketDirectory directory;
  Said said;
  std::atomic<bool> silent{false}, stop{false};
  FakeProxy proxy(directory.socket(),
                  [&](const std::string& line) { return silent ? std::nullopt : good(line); });
  ProxyOptions options = options_for(directory, &said, 60.0);
  options.stop_asked = [&] { return stop.load(); };
  ProxyClient client(options, experiment(), two_sources());
  first_phase(&client);
  silent = true;
  std::thread signal([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  EXPECT_LT(seconds_of([&] { client.begin_phase(7, {}); }), 30.0);  // of sixty
  signal.join();
  EXPECT_EQ(client.not_reproducible_from(), 7);
}

TEST(ProxyClientTest, ItsStateIsThatOfThePolicyWithTheRowsItHasNotSeen) {
  const SocketDirectory directory;
  Said said;
  ProxyClient client(options_for(directory, &said, 0.2), experiment(), two_sources());
  {
    FakeProxy proxy(directory.socket(), good);
    first_phase(&client);
  }
  client.begin_phase(7, rows(5));
  const Json state = Json::parse(client.state());
  EXPECT_EQ(state["pending"]["source"], (std::vector<int>{1, 0}));
  EXPECT_EQ(static_cast<float>(state["pending"]["loss"][0].get<double>()), 4.521F);

  ProxyClient resumed(options_for(directory, &said), experiment(), two_sources());
  resumed.restore("{\"phase\":{\"weights\":[0.25,0.75]},\"pending\":{}}");
  EXPECT_EQ(resumed.begin_phase(14, {}).weights, (std::vector<double>{0.25, 0.75}));
  EXPECT_THROW(resumed.restore("{"), CheckpointError);
}

TEST(ProxyClientTest, SamplesTravelAsBytesAndWithoutAVerdictNothingFails) {
  const SocketDirectory directory;
  Said said;
  ProxyClient alone(options_for(directory, &said, 0.3), experiment(), two_sources());
  EXPECT_TRUE(std::isnan(alone.score("nobody listens").score));
  ProxyClient client(options_for(directory, &said, 60.0), experiment(), two_sources());
  FakeProxy proxy(directory.socket(), [](const std::string& line) {
    const std::string text = Json::parse(line)["text"];
    return std::optional<std::string>(
        Json{{"type", "verdict"}, {"score", text.size()}, {"parts", Json(text).dump()}}.dump() + "\n");
  });
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
      {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xe4", "//7k"}};
  for (const auto& [bytes, encoded] : cases) {
    const Coherence verdict = client.score(bytes);
    EXPECT_EQ(verdict.json, Json(encoded).dump());
    EXPECT_EQ(verdict.score, static_cast<double>(encoded.size()));
  }
}

}  // namespace
}  // namespace andrea
