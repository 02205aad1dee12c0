#include "engine/run/checkpoint_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/errors.h"
#include "engine/file_size_limit.h"
#include "engine/hash/xxh64.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;

class CheckpointFile : public ::testing::Test {
 protected:
  CheckpointFile() {
    for (int i = 0; i < 5; ++i) {
      weights_.push_back(0.5F + static_cast<float>(i));
      m_.push_back(-0.25F * static_cast<float>(i));
      v_.push_back(1e-30F * static_cast<float>(i));
    }
  }
  std::uint64_t write(std::int32_t step = 7) {
    return write_checkpoint(path_, step, static_cast<std::int32_t>(weights_.size()), weights_.data(),
                            m_.data(), v_.data());
  }
  std::string refusal(std::int32_t expected = -1) {
    const std::string message = message_of<CheckpointError>(
        [&] { read_checkpoint(path_, expected, nullptr, nullptr, nullptr, nullptr); });
    EXPECT_HAS(message, path_);
    return message;
  }

  ScratchDirectory directory_;
  std::string path_ = directory_.file("step_000007.bin");
  std::vector<float> weights_, m_, v_;
};

TEST_F(CheckpointFile, HasExactlyTheBytesOfTheContract) {
  const std::uint64_t hash = write();
  std::string expected;
  const std::int32_t header[2] = {7, 5};
  expected.append(reinterpret_cast<const char*>(header), 8);
  for (const auto* section : {&weights_, &m_, &v_})
    expected.append(reinterpret_cast<const char*>(section->data()), 20);
  EXPECT_EQ(read_bytes(path_), expected);
  EXPECT_EQ(hash, xxh64(expected.data(), expected.size()));
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"step_000007.bin"});
}

TEST_F(CheckpointFile, ReadsBackTheSameBits) {
  const std::uint64_t written = write();
  std::vector<float> weights, m, v;
  std::uint64_t hash = 0;
  const CheckpointHeader header = read_checkpoint(path_, 5, &weights, &m, &v, &hash);
  EXPECT_EQ(header.step, 7);
  EXPECT_EQ(header.n_params, 5);
  EXPECT_EQ(weights, weights_);
  EXPECT_EQ(std::memcmp(m.data(), m_.data(), 20), 0);  // -0.0 too
  EXPECT_EQ(v, v_);
  EXPECT_EQ(hash, written);
}

TEST_F(CheckpointFile, ReadsMoreThanOneBlock) {
  const std::size_t n = (std::size_t{4} << 20) / 4 * 2 + 3;
  weights_.assign(n, 1.0F);
  m_.assign(n, 2.0F);
  v_.assign(n, 3.0F);
  weights_[n - 1] = 4.0F;
  const std::uint64_t written = write();
  std::vector<float> weights;
  std::uint64_t hash = 0;
  read_checkpoint(path_, static_cast<std::int32_t>(n), &weights, nullptr, nullptr, &hash);
  EXPECT_EQ(weights, weights_);
  EXPECT_EQ(hash, written);
}

TEST_F(CheckpointFile, EveryWrongLengthIsRefused) {
  write();
  const std::string whole = read_bytes(path_);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(path_, whole.substr(0, length));
    refusal();
  }
  write_bytes(path_, whole + "x");
  EXPECT_HAS(refusal(), "69 bytes");
  EXPECT_HAS(refusal(), "makes 68");
}

TEST_F(CheckpointFile, AWrongNumberOfParametersSaysBoth) {
  write();
  const std::string message = refusal(9);
  EXPECT_HAS(message, "5 parameters");
  EXPECT_HAS(message, "has 9");
}

TEST_F(CheckpointFile, AnImpossibleHeaderIsRefused) {
  for (const std::int32_t n_params : {-1, 0, std::numeric_limits<std::int32_t>::min()}) {
    const std::int32_t header[2] = {1, n_params};
    write_bytes(path_, std::string(reinterpret_cast<const char*>(header), 8));
    refusal();
  }
  write();
  std::string bytes = read_bytes(path_);
  bytes[3] = '\x80';  // a negative step
  write_bytes(path_, bytes);
  EXPECT_HAS(refusal(), "step -");
}

TEST_F(CheckpointFile, ValuesThatAreNotFiniteNameTheirElement) {
  write();
  const std::string whole = read_bytes(path_);
  const float nan = NAN, infinity = -INFINITY;
  std::string bytes = whole;
  std::memcpy(bytes.data() + 8 + 20 + 4 * 3, &nan, 4);
  write_bytes(path_, bytes);
  EXPECT_HAS(refusal(), "element 3 of m is NaN");
  bytes = whole;
  std::memcpy(bytes.data() + 8 + 40, &infinity, 4);
  write_bytes(path_, bytes);
  EXPECT_HAS(refusal(), "element 0 of v is -infinity");
}

TEST_F(CheckpointFile, NothingUnreadableIsWrittenAndTheOldFileStays) {
  write();
  const std::string before = read_bytes(path_);
  weights_[2] = INFINITY;
  EXPECT_HAS(message_of<CheckpointError>([&] { write(); }), "element 2 of weights is +infinity");
  weights_[2] = 0;
  EXPECT_THROW(write(-1), CheckpointError);
  EXPECT_THROW(write_checkpoint(path_, 1, 0, nullptr, nullptr, nullptr), CheckpointError);
  EXPECT_EQ(read_bytes(path_), before);
}

TEST_F(CheckpointFile, AFailedWriteKeepsTheOldFileAndNoTemporaryOne) {
  write(3);
  const std::string before = read_bytes(path_);
  {
    FileSizeLimit limit(30);
    EXPECT_THROW(write(4), IoError);
  }
  EXPECT_EQ(read_bytes(path_), before);
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"step_000007.bin"});
  write(4);
  EXPECT_NE(read_bytes(path_), before);
}

TEST_F(CheckpointFile, WhatAKilledWriterLeftOfThisNameGoesAndThatOfALivingOneStays) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string gone = std::to_string(child), living = std::to_string(::getppid());
  const std::vector<std::string> kept = {".other.bin." + gone + ".tmp", ".step_000007.bin." + living + ".tmp",
                                         ".step_000007.bin." + gone + ".tmp.txt", ".step_000007.bin.x.tmp"};
  for (const std::string& name : kept) write_bytes(directory_.file(name), "half");
  write_bytes(directory_.file(".step_000007.bin." + gone + ".tmp"), "half");
  write();
  std::vector<std::string> expected = kept;
  expected.emplace_back("step_000007.bin");
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(directory_.names(), expected);
}

TEST_F(CheckpointFile, TooLittleSpaceIsSeenBeforeWriting) {
  bool filled = false;
  const std::string message = message_of<IoError>(
      [&] { write_file_atomically(path_, std::size_t{1} << 60, [&](const Sink&) { filled = true; }); });
  EXPECT_HAS(message, "free");
  EXPECT_HAS(message, "1152921504606846976");
  EXPECT_FALSE(filled);
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(CheckpointFile, PathsInTheWayAreSaid) {
  EXPECT_HAS(message_of<IoError>([&] { read_checkpoint(path_, 1, nullptr, nullptr, nullptr, nullptr); }),
             "no such checkpoint");
  ASSERT_EQ(::mkdir(path_.c_str(), 0755), 0);
  EXPECT_THROW(write(), IoError);
  EXPECT_HAS(refusal(), "not a regular file");
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"step_000007.bin"});
  path_ = directory_.file("missing/x.bin");
  EXPECT_THROW(write(), IoError);
}

}  // namespace
}  // namespace andrea
