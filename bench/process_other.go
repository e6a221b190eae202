//go:build !linux

package main

import (
	"errors"
	"time"
)

type usage struct {
	cpu                       time.Duration
	rss, anon, wrote, written int64
}

var errLinux = errors.New("a process is measured on Linux only")

func processUsage(int) (usage, error) { return usage{}, errLinux }
func diskBytes(string) (int64, error) { return 0, errLinux }
func ownTime() time.Duration          { return 0 }
func loadAverage() string             { return "unknown" }
func processor() string               { return "unknown" }
