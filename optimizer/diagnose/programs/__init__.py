"""Line formats of training programs, one a file."""
