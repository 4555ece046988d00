-- Run by the image of the Dockerfile, in the database that a new container makes.
CREATE EXTENSION delay_wheel;
