// Goroutines, asked what bench/green asks our green threads. One line for each
// answer: name, value.
//
//	green QUESTION...
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

func perOperation(begin time.Time, operations int) float64 {
	return float64(time.Since(begin).Nanoseconds()) / float64(operations)
}

// As many yielding goroutines: per switch.
func yield(goroutines int) float64 {
	const switches = 4_000_000
	turns := switches / goroutines
	arrived := 0
	var begin, end time.Time
	var all sync.WaitGroup
	all.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func() {
			arrived++
			if arrived == goroutines {
				begin = time.Now()
			}
			for arrived < goroutines {
				runtime.Gosched()
			}
			for turn := 0; turn < turns; turn++ {
				runtime.Gosched()
			}
			if end.IsZero() {
				end = time.Now()
			}
			all.Done()
		}()
	}
	all.Wait()
	return float64(end.Sub(begin).Nanoseconds()) / float64(turns*goroutines)
}

// One goroutine after the other is started and waited for.
func spawnAndJoin() float64 {
	const goroutines = 1_000_000
	var one sync.WaitGroup
	begin := time.Now()
	for i := 0; i < goroutines; i++ {
		one.Add(1)
		go func() { one.Done() }()
		one.Wait()
	}
	return perOperation(begin, goroutines)
}

// The same, joined as one joins a single goroutine as a rule.
func spawnAndJoinByChannel() float64 {
	const goroutines = 1_000_000
	begin := time.Now()
	for i := 0; i < goroutines; i++ {
		done := make(chan struct{})
		go func() { close(done) }()
		<-done
	}
	return perOperation(begin, goroutines)
}

// A thousand at a time.
func spawnManyAndJoin() float64 {
	const goroutines, rounds = 1_000, 1_000
	var all sync.WaitGroup
	begin := time.Now()
	for round := 0; round < rounds; round++ {
		all.Add(goroutines)
		for i := 0; i < goroutines; i++ {
			go func() { all.Done() }()
		}
		all.Wait()
	}
	return perOperation(begin, goroutines*rounds)
}

// There and back through two unbuffered channels.
func channelRoundTrip(roundTrips int, lock bool) float64 {
	there := make(chan int)
	back := make(chan int)
	go func() {
		if lock {
			runtime.LockOSThread()
		}
		for value := range there {
			back <- value
		}
	}()
	if lock {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	begin := time.Now()
	for i := 0; i < roundTrips; i++ {
		there <- i
		<-back
	}
	nanos := perOperation(begin, roundTrips)
	close(there)
	return nanos
}

func uncontendedMutex() float64 {
	const operations = 50_000_000
	var mutex sync.Mutex
	begin := time.Now()
	for i := 0; i < operations; i++ {
		mutex.Lock()
		mutex.Unlock()
	}
	return perOperation(begin, operations)
}

var sink [64]uint64

func work(seed uint64, turns int) uint64 {
	value := seed
	for i := 0; i < turns; i++ {
		value = value*6364136223846793005 + 1442695040888963407
	}
	return value
}

// Eight goroutines that compute: milliseconds for all of them.
func independentWork() float64 {
	const goroutines, turns = 8, 50_000_000
	var all sync.WaitGroup
	all.Add(goroutines)
	begin := time.Now()
	for i := 0; i < goroutines; i++ {
		go func(i int) {
			sink[i*8] = work(uint64(i), turns)
			all.Done()
		}(i)
	}
	all.Wait()
	return float64(time.Since(begin).Nanoseconds()) / 1e6
}

func residentBytes() int {
	// The second number: resident pages.
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int
	fmt.Sscan(string(text), &size, &resident)
	return resident * os.Getpagesize()
}

// Bytes for each of a million that wait.
func parkedBytes() float64 {
	const goroutines = 1_000_000
	before := residentBytes()
	release := make(chan struct{})
	var parked, all sync.WaitGroup
	parked.Add(goroutines)
	all.Add(goroutines)
	for i := 0; i < goroutines; i++ {
		go func() {
			parked.Done()
			<-release
			all.Done()
		}()
	}
	parked.Wait()
	after := residentBytes()
	close(release)
	all.Wait()
	return float64(after-before) / goroutines
}

func main() {
	for _, question := range os.Args[1:] {
		var answer float64
		switch question {
		case "yield/2":
			answer = yield(2)
		case "yield/100":
			answer = yield(100)
		case "spawn_join":
			answer = spawnAndJoin()
		case "spawn_join_channel":
			answer = spawnAndJoinByChannel()
		case "spawn_many":
			answer = spawnManyAndJoin()
		case "channel":
			answer = channelRoundTrip(2_000_000, false)
		case "channel_locked":
			answer = channelRoundTrip(100_000, true)
		case "mutex":
			answer = uncontendedMutex()
		case "work":
			answer = independentWork()
		case "parked":
			answer = parkedBytes()
		default:
			fmt.Fprintln(os.Stderr, "green: no such question:", question)
			os.Exit(2)
		}
		fmt.Printf("%s %.1f\n", question, answer)
	}
}
