#include "engine/run/history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "engine/file_size_limit.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;

class History : public ::testing::Test {
 protected:
  ScratchDirectory directory_;
  std::string array_ = directory_.file("n.loss.json");
  std::string lines_ = directory_.file("n.rows.jsonl");
};

TEST_F(History, AnArrayIsValidAfterEveryAppend) {
  JsonArrayFile file(array_);
  EXPECT_EQ(read_bytes(array_), "[\n]");
  EXPECT_EQ(file.bytes(), 3);
  for (int i = 0; i < 5; ++i) {
    file.append("[" + std::to_string(i) + ",7.5]");
    const auto value = nlohmann::json::parse(read_bytes(array_));
    ASSERT_EQ(value.size(), static_cast<std::size_t>(i + 1));
    ASSERT_EQ(file.bytes(), static_cast<std::int64_t>(read_bytes(array_).size()));
  }
  file.sync();
  EXPECT_EQ(read_bytes(array_), "[\n[0,7.5],\n[1,7.5],\n[2,7.5],\n[3,7.5],\n[4,7.5]\n]");
}

// Cutting to the length of any moment gives the bytes of that moment, and writing on gives the same file.
TEST_F(History, CuttingAnArrayGivesTheBytesOfThatMoment) {
  std::vector<std::string> moments;
  {
    JsonArrayFile file(array_);
    moments.push_back(read_bytes(array_));
    for (int i = 0; i < 6; ++i) {
      file.append("[" + std::to_string(i * 1000) + "]");
      moments.push_back(read_bytes(array_));
    }
  }
  for (std::size_t i = 0; i < moments.size(); ++i) {
    write_bytes(array_, moments.back());
    JsonArrayFile file(array_, static_cast<std::int64_t>(moments[i].size()));
    EXPECT_EQ(read_bytes(array_), moments[i]);
    for (std::size_t j = i; j + 1 < moments.size(); ++j) file.append("[" + std::to_string(j * 1000) + "]");
    EXPECT_EQ(read_bytes(array_), moments.back());
  }
}

TEST_F(History, AnArrayOpenedAgainGoesOn) {
  {
    JsonArrayFile(array_).append("1");
  }
  JsonArrayFile file(array_);
  file.append("2");
  EXPECT_EQ(read_bytes(array_), "[\n1,\n2\n]");
}

// A kill in the middle of the one write: any prefix of the new bytes over the old ones.
TEST_F(History, ATornAppendIsMended) {
  const std::string before = "[\n[0,7.5]\n]";
  const std::string after = "[\n[0,7.5],\n[1,6.25]\n]";
  for (std::size_t n = before.size() - 2; n <= after.size(); ++n) {
    const std::string torn = after.substr(0, n) + (n < before.size() ? before.substr(n) : "");
    write_bytes(array_, torn);
    {
      JsonArrayFile file(array_);
      const std::string now = read_bytes(array_);
      EXPECT_TRUE(now == before || now == after) << "torn at " << n << ": " << now;
      EXPECT_EQ(file.bytes(), static_cast<std::int64_t>(now.size()));
    }
    write_bytes(array_, torn);
    JsonArrayFile file(array_, static_cast<std::int64_t>(before.size()));
    EXPECT_EQ(read_bytes(array_), before) << "torn at " << n;
  }
  for (const char* torn : {"[", "[\n", "[\n1", "[\n1\n"}) {
    write_bytes(array_, torn);
    JsonArrayFile file(array_);
    EXPECT_NO_THROW(nlohmann::json::parse(read_bytes(array_))) << torn;
  }
}

TEST_F(History, WhatIsNoHistoryIsRefusedAndLeftAlone) {
  for (const std::string text : {"{}", "[1,2]", "hello", "[[0,1.5],[1,1.5]]"}) {
    write_bytes(array_, text);
    EXPECT_THROW(JsonArrayFile{array_}, DataError) << text;
    EXPECT_THROW(JsonArrayFile(array_, 3), DataError) << text;
    EXPECT_EQ(read_bytes(array_), text);
  }
  write_bytes(array_, "[\n1\n]");
  EXPECT_HAS(message_of<DataError>([&] { JsonArrayFile(array_, 99); }), "99");
  EXPECT_HAS(message_of<DataError>([&] { JsonArrayFile(array_, 2); }), "2 bytes");
  EXPECT_EQ(read_bytes(array_), "[\n1\n]");
  EXPECT_THROW(JsonArrayFile{directory_.path()}, IoError);
  EXPECT_THROW(JsonArrayFile{directory_.file("none/a.json")}, IoError);
}

TEST_F(History, AFullDiskLeavesAnArrayAsItWasAndTheAppendCanBeRepeated) {
  JsonArrayFile file(array_);
  file.append("[0,1.5]");
  const std::string before = read_bytes(array_);
  for (const std::uint64_t room : {0, 1, 2, 5}) {
    FileSizeLimit limit(before.size() + room);
    EXPECT_THROW(file.append("[1,2.5,\"long enough\"]"), IoError);
    EXPECT_EQ(read_bytes(array_), before);
    EXPECT_EQ(file.bytes(), static_cast<std::int64_t>(before.size()));
  }
  file.append("[1,2.5]");
  EXPECT_EQ(read_bytes(array_), "[\n[0,1.5],\n[1,2.5]\n]");
}

TEST_F(History, LinesAreBufferedAndCounted) {
  JsonLinesFile file(lines_);
  file.append("{\"a\":1}");
  EXPECT_EQ(read_bytes(lines_), "");
  EXPECT_EQ(file.bytes(), 8);
  file.flush();
  EXPECT_EQ(read_bytes(lines_), "{\"a\":1}\n");
  file.append("2");
  file.sync();
  EXPECT_EQ(read_bytes(lines_), "{\"a\":1}\n2\n");
  EXPECT_EQ(file.bytes(), 10);
}

TEST_F(History, LinesAreCutToALength) {
  write_bytes(lines_, "1\n22\n333\n");
  {
    JsonLinesFile file(lines_, 5);
    file.append("4");
  }
  EXPECT_EQ(read_bytes(lines_), "1\n22\n4\n");
  {
    JsonLinesFile file(lines_, 0);
  }
  EXPECT_EQ(read_bytes(lines_), "");
}

TEST_F(History, LinesOfAnotherFileAreRefusedAndLeftAlone) {
  write_bytes(lines_, "1\n22\n");
  EXPECT_THROW(JsonLinesFile(lines_, 3), DataError);
  EXPECT_THROW(JsonLinesFile(lines_, 6), DataError);
  EXPECT_EQ(read_bytes(lines_), "1\n22\n");
}

TEST_F(History, ATornLastLineGoes) {
  write_bytes(lines_, "1\n22\n3" + std::string(10000, '3'));
  JsonLinesFile file(lines_);
  EXPECT_EQ(read_bytes(lines_), "1\n22\n");
}

TEST_F(History, AFullDiskKeepsTheLinesForTheNextFlush) {
  JsonLinesFile file(lines_);
  file.append("1");
  file.flush();
  file.append("22222222");
  file.append("3");
  {
    FileSizeLimit limit(6);
    EXPECT_THROW(file.flush(), IoError);
    EXPECT_EQ(read_bytes(lines_), "1\n");
    EXPECT_EQ(file.bytes(), 13);
  }
  file.flush();
  EXPECT_EQ(read_bytes(lines_), "1\n22222222\n3\n");
}

TEST_F(History, ARowIsOneLine) {
  Row row;
  row.step = 12345678901;
  row.row = 3;
  row.documents = 2;
  row.loss = 6.5F;
  EXPECT_EQ(row_line(row, "a\"b"),
            "{\"step\":12345678901,\"row\":3,\"source\":\"a\\\"b\",\"documents\":2,\"loss\":6.5}");
}

}  // namespace
}  // namespace andrea
