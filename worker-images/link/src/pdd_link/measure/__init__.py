"""What is made of packets and times: pure, so that a minute of the line takes no time to test."""
